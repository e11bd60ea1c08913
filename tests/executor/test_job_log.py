"""Jobs of a real worker: the DEBUG line that each leaves, and the memory that they share."""

import contextlib
import logging

import pytest
import torch

from grader import protocol as p
from grader.errors import DeviceError
from grader.executor import JobBuilder, TensorSpec, job_log, shared_memory
from grader.executor.interrupt import Interrupted
from grader.executor.job_log import compressed_kinds
from grader.executor.launcher import Role
from grader.executor.shared_memory import Region
from grader.grading.resources import Resources
from grader.verdict.models import Device

SOURCE = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, *order):
        super().__init__()
        self.order = order

    def forward(self, x):
        return (2 * x).permute(self.order) if self.order else 2 * x
"""


@contextlib.contextmanager
def started_worker():
    """A worker with a model."""
    with Resources() as resources, resources.launcher.start(Role.RUN, Device.CPU) as worker:
        worker.run([p.Import(source=SOURCE, file_name="x.py", class_name="ModelNew")], 60.0)
        worker.run([p.Construct(model="m", init_inputs=p.encode_value(()), device="cpu", seed=0)], 60.0)
        yield worker


def doubled(worker, x, *, forwards=1):
    job = JobBuilder(worker, Device.CPU)
    job.put_inputs("a", [x])
    for _ in range(forwards):
        job.step(p.Forward(model="m", inputs="a", tape="a"))
    job.export({"output:a:output": TensorSpec((8,), torch.float32)})
    return job.run(60.0).sealed["output:a:output"]


@pytest.mark.parametrize("timed", [True, False])
def test_only_a_timed_job_copies_a_tensor_in_the_order_of_its_memory(timed):
    """In another order the copy takes longer, which is no time of the submission's."""
    x, source = torch.randn(2, 3, 4, 5), "output:a:output"
    with started_worker() as worker:
        order = p.encode_value((0, 2, 3, 1))
        worker.run([p.Construct(model="permuted", init_inputs=order, device="cpu", seed=0)], 60.0)
        job = JobBuilder(worker, Device.CPU, at_once=timed)
        job.put_inputs("a", [x])
        job.step(p.Forward(model="permuted", inputs="a", tape="a"))
        job.export({source: TensorSpec((2, 4, 5, 3), torch.float32)})
        result = job.run(60.0)
    assert torch.equal(result.sealed[source], 2 * x.permute(0, 2, 3, 1))
    assert result.sealed[source].is_contiguous()
    assert result.of(p.Exported)[0].orders == ({source: (0, 3, 1, 2)} if timed else {})


def test_a_job_is_logged_with_its_steps_time_and_bytes(caplog, monkeypatch):
    """Nothing is composed while DEBUG is off."""
    with started_worker() as worker:
        x = torch.ones(8)
        with caplog.at_level(logging.DEBUG, "grader.executor"):
            assert torch.equal(doubled(worker, x, forwards=2), 2 * x)
        record = caplog.records[-1]
        assert (record.role, record.steps) == ("run", "PutInputs Forward*2 Export")
        assert 0 < record.ms < 60_000
        assert record.bytes_in >= x.nbytes
        assert record.bytes_out >= x.nbytes
        assert record.getMessage().startswith("run: PutInputs Forward*2 Export, ")
        caplog.clear()
        monkeypatch.setattr(job_log, "compressed_kinds", lambda steps: 1 / 0)
        worker.run([p.Drop()], 60.0)
        assert not caplog.records


@pytest.mark.parametrize("first", [True, False], ids=["before the first job", "in place of others"])
@pytest.mark.parametrize("fails", ["to be made", "to be attached"])
def test_memory_that_could_not_be_shared_is_not_used(monkeypatch, fails, first):
    made = []

    class Scarce(Region):
        def __init__(self, name, kind, nbytes):
            if made and fails == "to be made":
                raise DeviceError("no memory is left")
            super().__init__(name, kind, nbytes)
            made.append(self)
            self.closed = False

        def close(self):
            super().close()
            self.closed = True

    def refuse(steps, *_):
        raise Interrupted

    with started_worker() as worker:
        if not first:
            doubled(worker, torch.zeros(8))
        with monkeypatch.context() as scarce:
            scarce.setattr(shared_memory, "Region", Scarce)
            if fails == "to be attached":
                scarce.setattr(worker, "run", refuse)
            with pytest.raises((DeviceError, Interrupted)):
                worker.regions("host", 1, 1) if first else worker.release_memory()
        assert torch.equal(doubled(worker, torch.ones(8)), 2 * torch.ones(8))
        assert made
        assert all(region.closed for region in made)


def test_repeated_kinds_are_counted():
    drop, use = p.Drop(), p.Use(model="a", constructed="b")
    assert compressed_kinds([drop, use, use, drop]) == "Drop Use*2 Drop"
