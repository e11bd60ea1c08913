"""Attacks on the sandbox and the protocol, through the whole pipeline of one grader.

After each attack the same grader gives an honest submission its verdict, and nothing is left: no process, mount,
cgroup, file or shared memory.
"""

import contextlib
import os
import textwrap
from pathlib import Path

import pytest

from grader.executor.process_table import tree
from grader.grading import plan
from grader.grading.pipeline import Pipeline
from grader.grading.timing.stopping import RoundLimits
from grader.options import GraderOptions
from grader.verdict.models import Problem, Status, Submission, TimeLimits
from tests.attacks import outside, protocol, resources
from tests.attacks.outside import PROBLEM

CASES = Path(__file__).parents[1] / "cases"
HONEST = (CASES / "honest_plain" / "scale_bias_relu.py").read_text()
LIMITS = TimeLimits(build=20, construction=8, call=4)

pytestmark = pytest.mark.slow


MODEL = """
class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        attack()
        return torch.relu(x * self.scale + self.bias)
"""

IMPORTS = (
    "import ctypes, fcntl, json, mmap, os, signal, socket, struct, sys, threading, time, torch\nfrom torch import nn\n"
)

ATTACKS = {**outside.ATTACKS, **resources.ATTACKS, **protocol.ATTACKS}


@pytest.fixture(scope="module")
def grader():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", RoundLimits(min_rounds=1, max_rounds=1, seconds=0.0))
        patch.setenv("GRADER_SECRET", "do not tell")
        with Pipeline(GraderOptions(device="cpu", quick=True, limits=LIMITS)) as grader:
            assert grade(grader, HONEST).status is Status.CORRECT
            yield grader


def grade(grader, source):
    problem = Problem(id=PROBLEM.stem, path=PROBLEM, source=PROBLEM.read_text())
    submission = Submission(author="attacker", problem_id=PROBLEM.stem, path="attack.py", source=source)
    return grader.grade(grader.request(problem, submission))


def traces():
    """What an attack could leave: child processes, mounts, cgroups, files, shared memory, descriptors."""
    ours = f"-{os.getpid()}-"
    return {
        "processes": set(tree({os.getpid()})),
        "mounts": Path("/proc/self/mountinfo").read_text().splitlines(),
        "cgroups": {
            Path(folder, name)
            for folder, names, _ in os.walk("/sys/fs/cgroup")  # unlike glob, passes over those that other tests remove
            for name in names
            if name.startswith("grader-") and ours in name
        },
        "files": {path for folder in ("/tmp", "/var/tmp", "/dev/shm") for path in sandboxed_files(Path(folder))},
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


def sandboxed_files(folder):
    """Files of a sandbox's user or with a name of an attack; weak sandboxes belong to concurrent tests."""
    for path in folder.iterdir():
        if path.name.startswith("grader-weak-"):
            continue
        with contextlib.suppress(OSError):
            if path.name in ("left", "link", "torch_extensions", "bundle") or path.lstat().st_uid >= 2_000_000:
                yield path


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(grader, name):
    attack, statuses = ATTACKS[name]
    before = traces()
    verdict = grade(grader, IMPORTS + textwrap.dedent(attack) + "\n" + MODEL)
    diagnoses = [(diagnosis.code, diagnosis.message) for diagnosis in verdict.diagnoses]
    assert verdict.status in statuses, [*diagnoses, *(diagnosis.detail for diagnosis in verdict.diagnoses)]
    assert not any("\n" in message for _, message in diagnoses)
    assert traces() == before
    assert grade(grader, HONEST).status is Status.CORRECT
    assert traces() == before
