"""What a pool's processes call in tests and benchmarks in place of a `Grader`: verdicts at no cost, ends on demand.

Lines of a submission's source are commands, such as `# sleep: 0.1`, `# wait for: PATH`, `# die` and `# die once: PATH`.
"""

import logging
import os
import re
import signal
import time
from pathlib import Path

from grader.errors import Cancelled, UserError
from grader.executor.worker_template import WorkerTemplate
from grader.machine.toolchain import find_toolchain
from grader.options import GraderOptions
from grader.verdict.models import Device, Status
from tests import samples
from tests.fakes import FakeGrader

FAULTY = "GRADER_TEST_FAULTY"
"""Environment variable: visible devices that do not work, separated by commas."""


class CheapGrader(FakeGrader):
    def __init__(self, options: GraderOptions) -> None:
        super().__init__(options)
        if options.device == Device.CUDA and self._is_faulty():
            raise UserError("--device cuda: no CUDA device is here")
        self._lost = False
        self._unwanted = []

    def stop(self, request):
        self._unwanted.append(request)

    def grade(self, request):
        source = request.submission.source
        if path := re.search(r"^# wait for: (.+)$", source, re.MULTILINE):
            self._wait(request, lambda: Path(path[1]).exists())
        if seconds := re.search(r"^# sleep: (.+)$", source, re.MULTILINE):
            until = time.monotonic() + float(seconds[1])
            self._wait(request, lambda: time.monotonic() >= until)
        if text := re.search(r"^# log: (.+)$", source, re.MULTILINE):
            logging.getLogger("grader.grading").info("%s", text[1], extra={"stage": "build"})
        if re.search("^# die$", source, re.MULTILINE):
            os.kill(os.getpid(), signal.SIGKILL)
        once = re.search("^# die once: (.+)$", source, re.MULTILINE)
        if once and not Path(once[1]).exists():
            Path(once[1]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        verdict = super().grade(request)
        self._lost = verdict.status is Status.GRADER_ERROR
        return verdict

    def profile(self, request):
        self.grade(request)
        return samples.profile(request.submission)

    def _wait(self, request, done):
        """Wait until it is done. Raises Cancelled if the request is stopped meanwhile."""
        while not done():
            time.sleep(0.02)
            if any(one is request for one in self._unwanted):
                raise Cancelled("cancelled")

    def environment_for(self, request):
        return self.environment_on(request.device)

    def environment_on(self, device: Device):
        shown = os.environ.get("CUDA_VISIBLE_DEVICES") or None
        return samples.environment(device, host="here", device_id=shown if device is Device.CUDA else None)

    def device_fault(self, device: Device):
        if self._lost:
            return "CUDA error: an illegal memory access was encountered"
        return "no context" if self._is_faulty() else None

    def _is_faulty(self):
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        return bool(shown) and shown in os.environ.get(FAULTY, "").split(",")

    def close(self):
        pass


def never_made(options: GraderOptions) -> CheapGrader:
    """A grader whose start does not end, and has made a folder."""
    template = WorkerTemplate(find_toolchain())
    while template:
        time.sleep(60)
    return CheapGrader(options)
