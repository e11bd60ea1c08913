"""What all tests share: the process that workers are copied from, measured peaks, threads, reasons to skip."""

import os
import random
import shutil
import signal
import tempfile

import pytest
import torch

from grader.executor import worker_template
from grader.grading import chance, resources
from grader.grading.timing.roofline import Roofline
from grader.machine import host
from grader.machine.backends import worker_environment
from grader.machine.toolchain import find_cuda_home, find_toolchain
from tests.beside_torch import BesideTorch


@pytest.fixture(scope="session", autouse=True)
def one_worker_template():
    """Graders that one test process starts share a worker template: to import torch takes two seconds of a core each.

    A grader that would make another template, as in a test that changes its environment, still makes its own. None is
    started ahead.
    """
    kept, take = {}, worker_template.take

    def shared():
        key = (
            *(worker_template.MODULE, tempfile.gettempdir(), find_toolchain(), host.thread_count()),
            *worker_environment().items(),
        )
        if key not in kept:
            kept[key] = take()
            kept[key].close = lambda: None
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_template, "take", shared)
        patch.setattr(worker_template, "start_ahead", lambda device: None)
        yield
    for template in kept.values():
        worker_template.WorkerTemplate.close(template)


@pytest.fixture(scope="session", autouse=True)
def one_roofline(tmp_path_factory):
    """Graders of all test processes of a run share the peaks of this machine: each type's take seconds to measure."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "peaks"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "Roofline", lambda _, environment_of: Roofline(folder, environment_of))
        yield


@pytest.fixture(scope="session")
def beside_torch():
    """`beside_torch.run(code)` returns what the code prints in a process that has imported torch alone."""
    with BesideTorch() as process:
        yield process


@pytest.fixture(autouse=True)
def draws(request, monkeypatch):
    """A test draws the same numbers in each run, so that its failure can be repeated.

    GRADER_TEST_SEED is the seed of all; `fresh` draws others in each run, as tests marked `deep` always do.
    """
    seed = os.environ.get("GRADER_TEST_SEED", "1")
    if seed != "fresh" and not request.node.get_closest_marker("deep"):
        drawn = random.Random(f"{seed} {request.node.nodeid}")
        monkeypatch.setattr(chance, "draw", drawn)
        torch.manual_seed(drawn.getrandbits(62))  # of noise and of trained parameters


@pytest.fixture(autouse=True)
def no_registered_folders(tmp_path_factory, monkeypatch):
    """Tests do not see the problem folders that the user has registered."""
    monkeypatch.setenv("GRADER_PROBLEMS", str(tmp_path_factory.getbasetemp() / "nothing" / "problems.json"))


def pytest_configure():
    """Tests compute on one thread, as the referee does, and programs that they start can be interrupted.

    Threads that wait for each other cost a small product fifty times its own time, on cores that other tests need.
    Background jobs ignore SIGINT, and nohup's SIGHUP.
    """
    torch.set_num_threads(1)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


MAX_CPU_THREADS = host.MAX_CPU_THREADS


def pytest_collection_finish(session):
    """Workers compute on one thread, unless all tests of this run measure time, as those marked `alone` do.

    OpenMP's threads wait for each other by spinning. While several processes share the cores, a grading of a small
    problem takes six times its CPU time and ten times its wall time that way.
    """
    if not all(item.get_closest_marker("alone") for item in session.items):
        host.MAX_CPU_THREADS = 1


@pytest.fixture(scope="module")
def several_threads():
    """Workers compute on as many threads as for a user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "MAX_CPU_THREADS", MAX_CPU_THREADS)
        yield


def pytest_collection_modifyitems(items):
    missing = {
        "gpu": None if torch.cuda.is_available() else "needs an NVIDIA GPU: CONTRIBUTING.md describes how to run these",
        "browser": None if shutil.which("chromium") else "needs chromium on PATH: on Debian, apt-get install chromium",
        "nvcc": None if find_cuda_home() else "needs a CUDA toolkit: `make setup` installs one",
    }
    for item in items:
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
