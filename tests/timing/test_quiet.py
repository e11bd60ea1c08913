"""Workers that start ahead of need do not disturb a measurement."""

import time

from grader.errors import SandboxError
from grader.models import Device
from grader.pipeline import Grader
from grader.remote.launch import Role
from grader.remote.pause import STILL, _tree


def processes(launcher):
    return [
        state
        for spare in launcher._spares[Role.RUN, Device.CPU]
        for state in _tree(spare.result()._process.roots).values()
    ]


def test_spares_stand_still_while_they_start_and_start_all_the_same():
    with Grader(device="cpu") as grader:
        launcher = grader.workshop.launcher
        launcher.prepare(Role.RUN, Device.CPU, 2)
        with launcher.quiet(Device.CPU):
            for _ in range(5):
                assert len(processes(launcher)) >= 2 * 2
                assert set(processes(launcher)) <= set(STILL)
                time.sleep(0.05)
        for _ in range(2):
            with launcher.take(Role.RUN, Device.CPU) as worker:
                worker.wait_ready()


def test_a_spare_that_died_is_no_hindrance():
    with Grader(device="cpu") as grader:
        launcher = grader.workshop.launcher
        launcher.prepare(Role.RUN, Device.CPU)
        launcher._spares[Role.RUN, Device.CPU][0].result()._process.kill()
        with launcher.quiet(Device.CPU):
            pass
        with launcher.take(Role.RUN, Device.CPU) as worker:
            worker.wait_ready()


def test_nor_is_one_that_could_not_start(monkeypatch):
    with Grader(device="cpu") as grader:
        launcher = grader.workshop.launcher
        with monkeypatch.context() as broken:
            broken.setattr(launcher, "start", refuse)
            launcher.prepare(Role.RUN, Device.CPU)
            with launcher.quiet(Device.CPU):
                assert not launcher._spares[Role.RUN, Device.CPU]
        with launcher.take(Role.RUN, Device.CPU) as worker:
            worker.wait_ready()


def refuse(role, device):
    raise SandboxError("no room")
