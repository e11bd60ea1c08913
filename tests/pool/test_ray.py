"""Places on a Ray cluster: most tests with a stand-in for Ray, the last with a cluster whose nodes are killed."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from grader import GraderPool, UserError
from grader.catalog.requests import make_request
from grader.grading.build import BuildCache
from grader.machine.toolchain import find_toolchain
from grader.options import GraderOptions
from grader.pool import ray_places as places
from grader.pool.place import PlaceLost, StartFailed
from grader.pool.ray_builds import BuildTasks, Bundle, keep_bundle
from grader.verdict.models import Device, Status
from tests import samples

ROOT = Path(__file__).resolve().parents[2]
CHEAP = "tests.pool.engine:CheapGrader"


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class GetTimeoutError(RayError):
    pass


class RayActorError(RayError):
    pass


class ActorDiedError(RayActorError):
    pass


class FakeRay:
    """Runs actors and tasks in this process, at once; `failure` is raised in place of the next result."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        RayTaskError=RayTaskError,
        GetTimeoutError=GetTimeoutError,
        RayActorError=RayActorError,
        ActorDiedError=ActorDiedError,
    )

    def __init__(self, **resources):
        self.resources, self.failure, self.cancelled, self.killed = resources, None, [], []

    def cluster_resources(self):
        return self.resources

    def remote(self, target):
        return SimpleNamespace(options=lambda **needs: SimpleNamespace(remote=lambda *given: self._made(target, given)))

    def _made(self, target, given):
        made = target(*given)
        if not isinstance(target, type):
            return made
        methods = ("start", "send", "receive")
        calls = {
            name: SimpleNamespace(remote=lambda *words, name=name: (getattr(made, name), words)) for name in methods
        }
        return SimpleNamespace(**calls, made=made)

    def get(self, reference, timeout):
        if self.failure is not None:
            raise self.failure
        if isinstance(reference, Bundle):
            return reference
        method, words = reference
        try:
            return method(*words)
        except Exception as error:
            raise RayTaskError(error) from error

    def cancel(self, reference):
        self.cancelled.append(reference)

    def kill(self, actor, no_restart):
        actor.made._place.end()
        self.killed.append(actor)


@pytest.fixture
def ray():
    return FakeRay(CPU=4.0)


@pytest.fixture
def place(ray, tmp_path):
    (one,) = places.ray_places(ray, GraderOptions(device="cpu", build_cache=tmp_path / "builds"), "auto", 1, CHEAP)
    yield one
    one.end()


def request(*commands, device="cpu"):
    lines = [f"# {command}" for command in commands]
    submission = samples.submission(source="\n".join([*lines, samples.SUBMISSION_SOURCE]))
    return make_request(samples.problem(), submission, GraderOptions(device=device), default_device=Device.CPU)


def answer(place):
    while (one := place.receive(5.0)) is None:
        pass
    return one


def test_an_actor_grades_in_a_process_of_its_own(place, ray):
    ready = place.start()
    assert ready.environments[Device.CPU].host == "here"
    for number in (1, 2):
        place.send(number, request(f"{number}"))
    assert [(number, verdict.status) for number, verdict in (answer(place), answer(place))] == [
        (1, Status.CORRECT),
        (2, Status.CORRECT),
    ]
    place.end()
    assert len(ray.killed) == 1
    with pytest.raises(PlaceLost, match="was ended"):
        place.receive(0.1)


def test_a_process_that_its_submission_ends_is_told_from_a_node_that_dies(place, ray):
    place.start()
    place.send(1, request("die"))
    with pytest.raises(PlaceLost, match="SIGKILL") as lost:
        answer(place)
    assert not lost.value.external
    for failure, message, external in (
        (ActorDiedError("The actor died because its node has died."), "lost its node", True),
        (ActorDiedError("The actor process was killed."), "its actor ended", False),
        (RayActorError("unavailable"), "lost its node", True),
        (GetTimeoutError("late"), "its node gave no answer", True),
        (RayError("other"), "cannot be reached", True),
    ):
        ray.failure = failure
        with pytest.raises(PlaceLost, match=message) as lost:
            place.receive(0.1)
        assert lost.value.external is external


def test_a_device_that_does_not_work_is_told_at_the_start(place, monkeypatch):
    monkeypatch.setenv("GRADER_TEST_FAULTY", "5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setattr(places, "hidden_accelerators", dict)
    with pytest.raises(StartFailed, match="no context") as failed:
        place.start()
    assert failed.value.final


@pytest.mark.parametrize(
    ("resources", "options", "workers", "expected"),
    [
        ({"CPU": 64.0, "GPU": 4.0}, {}, None, [("Ray GPU", "cuda", 9)] * 4),
        ({"CPU": 8.0, "GPU": 4.0}, {"device": "cuda"}, None, [("Ray GPU", "cuda", 2)] * 4),
        ({"CPU": 8.0}, {}, None, [("Ray worker", "cpu", 2)] * 4),
        ({"CPU": 8.0, "GPU": 4.0}, {}, 3, [("Ray worker", "cpu", 2)] * 3),
        ({"CPU": 8.0, "GPU": 4.0}, {"device": "cpu"}, None, [("Ray worker", "cpu", 2)] * 4),
    ],
)
def test_each_gpu_of_the_cluster_is_a_place(resources, options, workers, expected):
    found = places.ray_places(FakeRay(**resources), GraderOptions(**options), "auto", workers, CHEAP)
    assert [(place.name.rpartition(" ")[0], place.device, place.depth) for place in found] == expected


def test_a_cluster_without_the_device_is_one_line(ray):
    with pytest.raises(UserError, match="the cluster has no GPU for --device cuda"):
        places.ray_places(ray, GraderOptions(device="cuda"), "auto", None, CHEAP)


def test_ray_that_is_not_installed_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install \'\.\[ray\]\'"):
        GraderPool(ray="auto")
    with pytest.raises(UserError, match="use one of them"):
        GraderPool(ray="auto", gpus="all")


def test_a_bundle_is_kept_if_the_same_toolchain_made_it(ray, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", ray)
    options, submission = GraderOptions(build_cache=tmp_path), samples.submission()
    cache = BuildCache(tmp_path, find_toolchain().hash)
    for bundle, kept in (
        (Bundle("another", b"built"), False),
        (Bundle(find_toolchain().hash, None), False),
        (Bundle(find_toolchain().hash, b"built"), True),
    ):
        assert keep_bundle(bundle, submission, options) is kept
        assert (cache.get(submission) is not None) is kept
    assert cache.get(submission).read_bytes() == b"built"
    ray.failure = RayError("its node died")
    assert not keep_bundle(Bundle("", None), submission, options)


def test_a_bundle_that_cannot_be_kept_is_logged_and_its_submission_graded(ray, place, monkeypatch, caplog, tmp_path):
    (tmp_path / "builds").touch()  # no folder
    monkeypatch.setitem(sys.modules, "ray", ray)
    place._builds = SimpleNamespace(start=lambda request: [Bundle(find_toolchain().hash, b"built")])
    place.start()
    place.send(1, request())
    number, verdict = place.receive(60.0)
    assert (number, verdict.status) == (1, Status.CORRECT)
    assert "the build of ann/scale is not kept: UserError: " in caplog.text
    assert "builds cannot be kept there (File exists)" in caplog.text


def test_only_what_compiles_apart_is_a_build_task(ray, monkeypatch):
    monkeypatch.setattr("grader.pool.ray_builds.build", lambda options, work: json.loads(work)["device"])
    builds = BuildTasks(ray, GraderOptions())
    source = (
        'from torch.utils.cpp_extension import load_inline\nload_inline("m", cuda_sources="__global__ void f(){}")\n'
    )
    cuda = make_request(
        samples.problem(), samples.submission(source=source), GraderOptions(device="cuda"), default_device=Device.CPU
    )
    assert builds.start(cuda) == ["cuda"]
    assert builds.start(request()) == []
    assert builds.start(request(device="cuda")) == []


@pytest.mark.slow
@pytest.mark.alone
def test_nodes_that_are_killed_lose_nothing():
    """Alone, because Ray gives up on a simulated node that does not start within 30 s."""
    pytest.importorskip("ray", reason="needs ray: pip install '.[ray]'")
    command = [sys.executable, "-m", "benchmarks.pool", "--ray-nodes", "2", "--count", "40", "--kills", "1"]
    done = subprocess.run([*command, "--sleep", "0.3"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["killed"], found["verdicts"], found["lost"], found["twice"]) == (1, 40, 0, 0)
    assert found["statuses"] == {"correct": 40}
