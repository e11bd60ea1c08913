"""A survey lists the kernels of a pass with their launches, and what is known of the operators behind them."""

import pytest
import torch
from torch import nn

from grader import protocol as p
from grader.worker.checks import local_memory
from grader.worker.checks.survey import survey
from grader.worker.checks.trace import Trace
from grader.worker.compile.importing import Builder
from grader.worker.session import Inputs, Session


class Model(nn.Module):
    def __init__(self, fails=False):
        super().__init__()
        self.layer = nn.Linear(64, 32)
        self.fails = fails

    def forward(self, x):
        if self.fails:
            raise RuntimeError("not under a profiler")
        return torch.tanh(self.layer(x))


def surveyed(model, passes=2):
    session = Session(Builder())
    x = torch.randn(16, 64)
    session.add_model("model", model)
    session.inputs["a"] = Inputs([x], {"input[0]": x})
    keys = {"model": "model", "inputs": "a", "tape": "a", "grads": "a"}
    return survey(session, p.Survey(forward=p.TimedPart(part="inference", **keys), passes=passes))


def test_a_pass_has_its_operators_with_calls_and_work():
    found = surveyed(Model())
    assert found.trouble == ""
    assert found.backward is None
    by_name = {kernel.name: kernel for kernel in found.forward.kernels}
    assert by_name["aten::tanh"].calls == 1
    assert 0 < sum(kernel.ms for kernel in found.forward.kernels) <= found.forward.ms
    work = {one.name: one.work for one in found.forward.operators}
    assert work["addmm"].matmul == 2 * 16 * 64 * 32
    assert work["addmm"].read_bytes == 4 * (16 * 64 + 64 * 32 + 32)
    assert work["tanh"].pointwise == 16 * 32
    assert (work["tanh"].read_bytes, work["tanh"].written_bytes) == (4 * 16 * 32, 4 * 16 * 32)
    assert by_name["aten::tanh"].work == work["tanh"]
    assert by_name["aten::tanh"].operator == "tanh"


def test_a_submission_that_raises_is_reported():
    assert surveyed(Model(fails=True)) == p.Surveyed(trouble="RuntimeError: not under a profiler")


def test_a_profiler_that_fails_is_reported(monkeypatch):
    def broken(*args, **kwargs):
        raise OSError("no counters")

    monkeypatch.setattr(torch.autograd.profiler, "profile", broken)
    assert surveyed(Model()) == p.Surveyed(trouble="OSError: no counters")


def test_the_protocol_limits_the_number_of_kernels():
    kernels = tuple(p.Launched(name=str(i), calls=1, ms=0.0) for i in range(p.MAX_LAUNCHES + 1))
    with pytest.raises(ValueError, match="at most 96"):
        p.Pass(ms=1.0, kernels=kernels)
    with pytest.raises(ValueError, match="at most 512"):
        p.Launched(name="x" * 513, calls=1, ms=0.0)


def event(cat, name, ts, dur, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


def test_a_gpus_trace_is_read():
    """As Kineto writes it, with clocks of host and GPU that differ by an hour."""
    launch = {"grid": [132, 2, 1], "block": [256, 1, 1], "registers per thread": 40, "shared memory": 16384}
    events = [
        event("user_annotation", "grader::forward", 3.6e9 + 100.0, 100.0),
        event("user_annotation", "grader::operator::0", 3.6e9 + 110.0, 20.0),
        event("cpu_op", "aten::mul", 3.6e9 + 112.0, 5.0, **{"External id": 70}),
        event("kernel", "fill", 100.0, 30.0, tid=9),
        event("kernel", "at::spin_kernel(long)", 140.0, 1.0, tid=9),
        event(
            *("kernel", "fused", 150.0, 30.0, 9),
            **{**launch, "est. achieved occupancy %": 75, "External id": 70},
        ),
        event("kernel", "fused", 190.0, 20.0, tid=9, **launch),
        event("kernel", "at::spin_kernel(long)", 220.0, 1.0, tid=9),
        event("gpu_memcpy", "Memcpy HtoD", 230.0, 5.0, tid=9),
        event("kernel", "at::spin_kernel(long)", 240.0, 1.0, tid=9),
        event("gpu_memcpy", "Memcpy DtoD", 300.0, 5.0, tid=9),
        event("kernel", "at::spin_kernel(long)", 310.0, 1.0, tid=9),
        {"ph": "M", "name": "process_name"},
    ]
    trace = Trace(events, ("forward", "backward"), on_gpu=True)
    assert trace.described() == "1 cpu_op, 2 gpu_memcpy, 7 kernel, 2 user_annotation"
    first, second = trace.of("forward")
    assert (first.name, first.ms, first.mark, first.grid, first.block) == ("fused", 0.03, 0, (132, 2, 1), (256, 1, 1))
    assert (first.registers, first.shared_bytes, first.occupancy) == (40, 16384, 0.75)
    assert (second.mark, second.occupancy) == (None, None)
    (copied,) = trace.of("backward")
    assert (copied.name, copied.grid) == ("Memcpy DtoD", None)


def test_containers_are_found_behind_padding():
    one, other = b"\x50\xed\x55\xba\x01\x00\x10\x00" + (8).to_bytes(8, "little") + b"a" * 8, b"\0" * 8
    assert list(local_memory.containers(other + one + other + one)) == [one, one]
    assert list(local_memory.containers(b"")) == []


def test_a_section_of_a_library_is_read():
    library = next(path for path in local_memory.Path(torch.__file__).parent.glob("_C.*.so"))
    content = library.read_bytes()
    assert local_memory.section(content, b".dynstr").startswith(b"\0")
    assert local_memory.section(content, b".nv_fatbin") == b""
    assert local_memory.section(b"text", b".text") == b""


def test_a_symbol_is_shown_as_a_profiler_shows_it():
    assert local_memory.demangled(b"_Z4siluIfLi4EEvPKT_PS0_l") == "void silu<float, 4>(float const*, float*, long)"
    assert local_memory.demangled(b"triton_poi_fused_0") == "triton_poi_fused_0"
