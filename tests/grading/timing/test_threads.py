"""Each worker computes on as many CPU threads as the verdict's environment says."""

import pytest

from grader import protocol as p
from grader.executor.launcher import Role
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Device

COUNTED = "import torch\nassert torch.get_num_threads() == {count}, torch.get_num_threads()\nclass ModelNew: pass\n"


@pytest.mark.slow
@pytest.mark.usefixtures("several_threads")
def test_workers_compute_on_the_recorded_number_of_threads():
    with Pipeline(GraderOptions(device="cpu", quick=True)) as grader:
        recorded = grader.resources.environment(Device.CPU).thread_count
        for role in (Role.RUN, Role.REFERENCE):
            with grader.resources.launcher.take(role, Device.CPU) as worker:
                for count, raises in ((recorded, False), (recorded + 1, True)):
                    step = p.Import(source=COUNTED.format(count=count), file_name="x.py", class_name="ModelNew")
                    assert (worker.run([step], 60.0).failure is not None) is raises
