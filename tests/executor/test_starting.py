"""How workers start, and whose failure it is if they do not."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from grader import protocol as p
from grader.errors import SandboxError
from grader.executor import worker_template
from grader.executor.launcher import Launcher, Role
from grader.executor.worker_template import _stage_folder
from grader.grading.resources import Resources
from grader.machine.toolchain import find_toolchain
from grader.sandbox import choose
from grader.verdict.models import Device
from tests.sandbox.conformance import wait_for

REPORT = """
import json, os, random, sys, uuid
import numpy, torch
raise ValueError(json.dumps({
    "random": [random.random(), numpy.random.rand(), str(uuid.uuid4())],
    "cuda": torch.cuda.is_initialized(),
    "stdin": os.readlink("/proc/self/fd/0"),
    "open": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:4],
}))
"""


@pytest.fixture(scope="module")
def resources():
    with Resources() as made:
        yield made


def reported(resources):
    with resources.launcher.start(Role.RUN, Device.CPU) as worker:
        evidence = worker.run([p.Import(source=REPORT, file_name="x.py", class_name="ModelNew")], 60.0)
    return json.loads(evidence.failure.text)


def test_no_two_workers_draw_the_same_numbers(resources):
    one, other = (reported(resources) for _ in range(2))
    assert set(one["random"]).isdisjoint(other["random"])
    assert one["stdin"] == "/dev/null"
    assert one["open"] == [0, 1, 2, p.CONTROL_FD]
    assert not one["cuda"]


@pytest.mark.parametrize("policy", ["PASSIVE", None])
def test_idle_openmp_threads_of_workers_wait_as_the_operator_says(monkeypatch, policy):
    monkeypatch.setattr(worker_template, "take", lambda: worker_template.WorkerTemplate(find_toolchain()))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if policy is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    with Resources() as own, own.launcher.start(Role.RUN, Device.CPU) as worker:
        source = "import os; raise ValueError(os.environ.get('OMP_WAIT_POLICY'))"
        failure = worker.run([p.Import(source=source, file_name="x.py", class_name="ModelNew")], 60.0).failure
    assert failure.text.endswith(str(policy))


def test_folders_of_killed_graders_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as dead:
        pass
    ours = _stage_folder()
    ours.mkdir()
    left = Path(str(ours).replace(f"-{os.getpid()}-", f"-{dead.pid}-"))
    left.mkdir()
    (left / "file").touch()
    others = tmp_path / f"grader-1-{dead.pid}-of-another-namespace"
    others.mkdir()
    another = _stage_folder()
    assert set(tmp_path.iterdir()) == {ours, others}
    assert another not in (ours, others)


IMPORT_WITHOUT_DRIVER = """
import os, torch

def refuse(*_):
    raise AssertionError("called the driver")

for name in ("_cuda_getDeviceCount", "_cuda_init"):
    if hasattr(torch._C, name):
        setattr(torch._C, name, refuse)
import grader.worker.main
print([os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")])
"""


def test_a_workers_imports_do_not_start_the_cuda_driver(beside_torch):
    """A copy of a process that has started the driver could not use it."""
    assert "nvidia" not in beside_torch.run(IMPORT_WITHOUT_DRIVER)


def test_a_worker_that_never_listens_is_a_sandbox_error(monkeypatch):
    monkeypatch.setattr("grader.executor.worker_template.MODULE", "grader.worker.no_such_module")
    monkeypatch.setattr("grader.executor.worker_process.MODULE", "grader.worker.no_such_module")
    with (
        Resources() as broken,
        pytest.raises(SandboxError, match="no_such_module"),
        broken.launcher.start(Role.RUN, Device.CPU) as worker,
    ):
        worker.run([p.Drop(keep_bytes=None)], 60.0)


def test_a_killed_zygote_is_a_sandbox_error():
    with Resources() as other, other.launcher.start(Role.RUN, Device.CPU) as worker:
        if not other.launcher.sandbox.copies:
            pytest.skip("workers are not copied here")
        worker.wait_ready()
        other.launcher.worker_template.zygote(gpu=False)._process.kill()
        wait_for(lambda: worker.ended)
        with pytest.raises(SandboxError, match="copied from was ended"):
            worker.run([p.Drop(keep_bytes=None)], 60.0)
        with other.launcher.start(Role.RUN, Device.CPU) as another:
            another.wait_ready()


AHEAD = """
import os, sys
from pathlib import Path
from grader.executor import worker_template

worker_template.start_ahead("cpu")
assert "torch" not in sys.modules, "the zygote must start while torch is imported"
(ahead,) = worker_template._ahead
if sys.argv[1] == "taken":
    with worker_template.take() as taken:
        assert taken is ahead
        assert taken.zygote(gpu=False) is ahead.zygote(gpu=False)
        with worker_template.take() as another:
            assert another is not ahead
else:
    worker_template.close_ahead()
assert not ahead.readonly[0].exists()
children = Path(f"/proc/self/task/{os.getpid()}/children")
assert not children.exists() or not children.read_text(), "a process is left running"
"""


@pytest.mark.parametrize("end", ["taken", "not taken"])
def test_a_zygote_starts_before_torch_is_imported(end):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", AHEAD, end]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if "not enough values to unpack" in ended.stderr:
        pytest.skip("workers are not copied here")
    assert ended.returncode == 0, ended.stderr


WORKERS_AHEAD = """
import os, sys
from pathlib import Path
from grader.executor import launcher, worker_template
from grader.executor.launcher import Role
from grader.sandbox import choose
from grader.verdict.models import Device

worker_template.start_ahead("cpu")
sandbox = choose("auto")
launcher.start_ahead(sandbox, "cpu")
(ahead,) = launcher._ahead
spares = [ahead._spares[role, Device.CPU][0] for role in (Role.RUN, Role.REFERENCE)]
if sys.argv[1] == "taken":
    worker = spares[0].result()
    worker.wait_ready()
    assert "torch" not in sys.modules, "workers must start while torch is imported"
    taken = launcher.take(sandbox)
    assert taken is ahead
    assert taken.take(Role.RUN, Device.CPU) is worker
    assert launcher.take(sandbox) is not ahead
    worker.close()
    taken.close()
else:
    launcher.close_ahead()
assert not launcher._ahead
children = Path(f"/proc/self/task/{os.getpid()}/children")
assert not children.exists() or not children.read_text(), "a process is left running"
"""


@pytest.mark.parametrize("end", ["taken", "not taken"])
def test_workers_start_before_torch_is_imported(end):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WORKERS_AHEAD, end]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("copied", [True, False])
def test_extensions_are_compiled_for_the_gpu_known_at_the_workers_start(monkeypatch, copied):
    sandbox = choose("auto")
    monkeypatch.setattr(sandbox, "copies", sandbox.copies and copied)
    source = "import os\nraise ValueError(os.environ['TORCH_CUDA_ARCH_LIST'])"
    with (
        closing(Launcher(sandbox, worker_template.take(), architecture="8.6")) as launcher,
        launcher.start(Role.BUILD, Device.CUDA) as worker,
    ):
        evidence = worker.run([p.Import(source=source, file_name="x.py", class_name="ModelNew")], 60.0)
    assert evidence.failure.text == "8.6"
