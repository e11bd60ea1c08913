"""Each worker job leaves one DEBUG line with its steps, time and bytes; nothing is composed while DEBUG is off."""

import logging

import torch

from grader import protocol as p
from grader.executor import JobBuilder, TensorSpec, client
from grader.executor.job_result import compressed_kinds
from grader.executor.launcher import Role
from grader.grading.resources import Resources
from grader.verdict.models import Device

SOURCE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return 2 * x
"""


def test_a_job_is_logged_with_its_steps_time_and_bytes(caplog, monkeypatch):
    with Resources() as resources, resources.launcher.start(Role.RUN, Device.CPU) as worker:
        worker.run([p.Import(source=SOURCE, file_name="x.py", class_name="ModelNew")], 60.0)
        worker.run([p.Construct(model="m", init_inputs=p.encode_value(()), device="cpu", seed=0)], 60.0)
        job = JobBuilder(worker, Device.CPU)
        x = torch.ones(8)
        job.put_inputs("a", [x])
        for _ in range(2):
            job.step(p.Forward(model="m", inputs="a", tape="a"))
        job.export({"output:a:output": TensorSpec((8,), torch.float32)})
        with caplog.at_level(logging.DEBUG, "grader.executor"):
            result = job.run(60.0)
        assert torch.equal(result.sealed["output:a:output"], 2 * x)
        record = caplog.records[-1]
        assert (record.role, record.steps) == ("run", "PutInputs Forward*2 Export")
        assert 0 < record.ms < 60_000
        assert record.bytes_in >= x.nbytes
        assert record.bytes_out >= x.nbytes
        assert record.getMessage().startswith("run: PutInputs Forward*2 Export, ")
        caplog.clear()
        monkeypatch.setattr(client, "compressed_kinds", lambda steps: 1 / 0)
        worker.run([p.Drop()], 60.0)
        assert not caplog.records


def test_repeated_kinds_are_counted():
    drop, use = p.Drop(), p.Use(model="a", constructed="b")
    assert compressed_kinds([drop, use, use, drop]) == "Drop Use*2 Drop"
