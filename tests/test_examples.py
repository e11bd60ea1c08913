"""The training loops and cluster files under examples/: called as the libraries call them, with a stub policy."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from grader import GraderPool
from tests import samples
from tests.serve import serving
from tests.serve.serving import Server

ROOT = Path(__file__).resolve().parents[1]
TRAIN = ROOT / "examples" / "train"
CHEAP = "tests.pool.engine:CheapGrader"


@pytest.fixture
def load(monkeypatch):
    """Loads an example without running its `main`."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def module(name):
        spec = importlib.util.spec_from_file_location(name, TRAIN / f"{name}.py")
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    module("completions")
    return module


@pytest.fixture
def pool(tmp_path):
    (tmp_path / "scale.py").write_text(samples.PROBLEM_SOURCE)
    options = {"workers": 2, "device": "cpu", "engine": CHEAP, "limit_seconds": 2.0}
    with GraderPool(problems=[tmp_path], **options) as started:
        yield started


def completion(status):
    return f"Reasons.\n```python\n# status: {status}\n{samples.SUBMISSION_SOURCE}```\nDone."


def test_trl_gets_a_reward_for_each_completion_in_order(load, pool):
    reward = load("trl_grpo").kernel_reward(pool)
    texts = [completion("correct"), completion("wrong_output"), "I cannot do that.", completion("grader_error")]
    texts.append(completion("correct\n# sleep: 60"))
    # GRPOTrainer passes these by keyword, and each further column of the dataset.
    values = reward(
        prompts=["p"] * 5, completions=texts, completion_ids=[[1]] * 5, trainer_state=None, problem=["scale"] * 5
    )
    assert values[0] > 1
    assert values[1:3] == [0.0, 0.0]
    assert values[3] is None or isinstance(values[3], float)
    assert values[4] is None
    messages = [[{"role": "assistant", "content": text}] for text in texts[:2]]
    assert reward(prompts=["p"] * 2, completions=messages, problem=["scale"] * 2) == values[:2]
    assert reward.__name__


def test_verl_gets_each_reward_at_the_last_token(load, pool, monkeypatch):
    verl = load("verl_reward")
    monkeypatch.setattr(verl, "grader", lambda: pool)
    texts = [completion("correct"), "no code"]
    data = verl.StubBatch(["p", "longer"], texts, ["scale"] * 2)
    manager = verl.KernelRewardManager(verl.StubTokenizer(), 1, compute_score=None, reward_fn_key="data_source")
    found = manager(data, return_dict=True)
    tensor = found["reward_tensor"]
    assert tensor.shape == data.batch["responses"].shape
    assert tensor[0, len(texts[0]) - 1] == tensor[0].sum() > 1
    assert tensor[1].sum() == 0
    assert found["reward_extra_info"] == {"graded": [True, True]}
    assert torch.equal(manager(data), tensor)
    score = verl.compute_score("kernels", texts[0], None, extra_info={"problem": "scale"})
    assert score == pytest.approx(float(tensor[0].sum()))


def test_verl_s_reward_loop_uses_the_server_that_the_environment_names(load, tmp_path, monkeypatch):
    (tmp_path / "scale.py").write_text(samples.PROBLEM_SOURCE)
    token = "a token of these tests"
    arguments = ("--submit", "--problems", str(tmp_path), "--workers", "1", "--device", "cpu")
    with Server(tmp_path / "g.db", *arguments, program=("-c", serving.CHEAP), GRADER_TOKEN=token) as server:
        monkeypatch.setenv("GRADER_SERVER", server.address)
        monkeypatch.setenv("GRADER_TOKEN", token)
        score = load("verl_reward").compute_score
        assert score("kernels", completion("correct"), None, extra_info={"problem": "scale"}) > 1
        assert score("kernels", "no code", None, extra_info={"problem": "scale"}) == 0


def test_a_completion_without_a_verdict_gets_its_group_s_mean(load):
    with_means = load("verl_reward").with_means
    assert with_means([1.0, None, 3.0, None], ["a", "a", "a", "b"]) == [1.0, 2.0, 3.0, 0.0]


@pytest.mark.slow
def test_the_stub_policy_is_graded_for_real():
    done = subprocess.run([sys.executable, TRAIN / "trl_grpo.py"], capture_output=True, text=True, check=True)
    right, forward_only, nothing = map(float, done.stdout.split())
    assert right > 0.3
    assert forward_only == nothing == 0


def test_the_cluster_files_are_what_ray_reads():
    cluster = ROOT / "examples" / "cluster"
    raised = yaml.safe_load((cluster / "ray-up.yaml").read_text())
    schema = pytest.importorskip("ray.autoscaler._private.util", reason="needs ray: pip install '.[ray]'")
    schema.validate_config(schema.prepare_config(raised))
    job = yaml.safe_load((cluster / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    for group in (job["spec"]["rayClusterSpec"]["headGroupSpec"], *job["spec"]["rayClusterSpec"]["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert {"name", "image", "resources"} <= container.keys()
    assert subprocess.run(["bash", "-n", cluster / "slurm.sh"], check=False).returncode == 0
