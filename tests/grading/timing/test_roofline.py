"""The roofline: known counts of known operations, bounds that err low, and a planted impossible time."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from grader import protocol as p
from grader.grading.pipeline import Pipeline
from grader.grading.timing import roofline
from grader.grading.timing.roofline import Peaks, Roofline, above_roofline, bound_ms
from grader.options import GraderOptions
from grader.verdict.models import Device, Problem, Submission
from grader.verdict.precision import Precision
from grader.verdict.stages import FigureTiming, StageStatus, TimingResult
from grader.worker.checks.work_count import Counter, nbytes
from grader.worker.timing import peaks
from grader.worker.timing.peaks import measured_peaks
from tests import samples

PEAKS = Peaks(float32=1e9, tf32=6e9, bytes=1e6, cache_bytes=1000)


def counted(function, *given):
    with Counter(given) as counter:
        result = function(*given)
    return counter.work([result] if isinstance(result, torch.Tensor) else result)


def test_a_linear_layer():
    layer = nn.Linear(32, 64)
    x = torch.randn(16, 32)
    work = counted(lambda *_: layer(x), x, layer.weight, layer.bias)
    assert (work.matmul, work.convolution) == (2 * 16 * 32 * 64, 0)
    assert work.read_bytes == 4 * (16 * 32 + 32 * 64 + 64)
    assert work.written_bytes == 4 * 16 * 64


def test_a_convolution():
    layer = nn.Conv2d(3, 8, 3, bias=False)
    x = torch.randn(2, 3, 10, 10)
    work = counted(lambda *_: layer(x), x, layer.weight)
    assert (work.matmul, work.convolution) == (0, 2 * (2 * 8 * 8 * 8) * (3 * 3 * 3))
    assert work.written_bytes == 4 * 2 * 8 * 8 * 8


def test_pointwise_operations_count_by_element_and_copies_not_at_all():
    x = torch.randn(8, 16)
    work = counted(lambda x: torch.relu(x * 2 + 1).clone(), x)
    assert work.pointwise == 3 * x.numel()
    assert (work.matmul, work.read_bytes, work.written_bytes) == (0, nbytes(x), nbytes(x))


def test_a_backward():
    layer, x = nn.Linear(32, 64, bias=False), torch.randn(16, 32, requires_grad=True)
    y = layer(x)
    g = torch.randn_like(y)
    work = counted(lambda g: torch.autograd.grad(y, [x, layer.weight], g), g)
    assert work.matmul == 2 * (2 * 16 * 32 * 64)
    assert work.read_bytes == nbytes(g)
    assert work.written_bytes == nbytes(x) + nbytes(layer.weight)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (nn.Linear(8, 16), (4, 8)),
        (nn.Conv1d(8, 6, 3, stride=2), (2, 8, 11)),
        (nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1), (2, 8, 5, 7)),
        (lambda x: x @ x.mT, (3, 4, 5)),
        (lambda x: torch.baddbmm(x[..., :1], x, x.mT), (3, 4, 5)),
    ],
)
def test_products_are_counted_as_the_library_counts_them(function, shape):
    x = torch.randn(shape, requires_grad=True)
    with Counter([]) as counter:
        function(x).sum().backward()
    work = counter.work([])
    with FlopCounterMode(display=False) as library:
        function(x).sum().backward()
    assert work.matmul + work.convolution == library.get_total_flops() > 0


def test_counting_does_not_import_the_compiler(beside_torch):
    code = """
import sys, torch
from grader.worker.checks.work_count import Counter
x, layer = torch.randn(2, 4, 8, 8, requires_grad=True), torch.nn.Conv2d(4, 4, 3)
with Counter([x]) as counter:
    torch.nn.functional.gelu(layer(x)).sum().backward()
print(counter.work([]).convolution > 0, [name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""
    assert beside_torch.run(code).strip() == "True []"


def test_only_what_is_looked_up_is_read():
    table, index, unused = torch.randn(1000, 8), torch.randint(1000, (5,)), torch.randn(100)
    work = counted(lambda table, index, _: nn.functional.embedding(index, table), table, index, unused)
    assert work.read_bytes == 4 * 5 * 8 + 8 * 5


def test_a_slice_reads_its_part_and_a_view_nothing():
    x = torch.randn(10, 8)
    assert counted(lambda x: x[:3].sum(), x).read_bytes == 4 * 3 * 8
    assert counted(lambda x: (x.view(80), x), x).written_bytes == 0


def test_what_is_expanded_is_there_once():
    gradient = counted(lambda x: x.expand(64, 8), torch.randn(8)[None].clone())
    assert gradient.written_bytes == 0
    assert nbytes(torch.zeros(1).expand(64)) == 4


def test_the_largest_of_three_times_bounds():
    def least(device=Device.CUDA, tf32=False, **work):
        return bound_ms([p.Work(**work)], PEAKS, device, tf32=tf32)

    assert least(matmul=2 * 10**9) == pytest.approx(1e3), "two split products a second"
    assert least(convolution=8 * 10**9) == pytest.approx(1e3), "and Winograd's saving"
    assert least(convolution=8 * 10**9, tf32=True) == pytest.approx(1e3 / 3)
    assert least(pointwise=10**9) == pytest.approx(1e3)
    assert least(read_bytes=10**6, written_bytes=1000) == pytest.approx(1e3), "what is written may stay in the cache"
    assert least(device=Device.CPU, read_bytes=10**6, written_bytes=1000) == pytest.approx(1e3)
    assert least(read_bytes=10**6, matmul=10**9) == pytest.approx(1e3)


def test_without_a_known_cache_memory_bounds_nothing():
    peaks = Peaks(1e9, 1e9, 1e6, None)
    assert bound_ms([p.Work(read_bytes=10**9)], peaks, Device.CPU, tf32=True) == 0


def test_peaks_are_measured_here():
    measured = measured_peaks(torch.device("cpu"))
    assert 1e8 < measured.float32 < 1e14
    assert 1e8 < measured.bytes < 1e13


def test_slow_products_are_measured_twice(monkeypatch):
    """Those of float16 take a second each on some CPUs."""
    times = {"product": [3000.0, 1000.0], "other": [20.0] * 8 * 4}
    calls = []

    def milliseconds(device, action):
        calls.append(action.__closure__[0].cell_contents.dtype)
        return times["product" if calls[-1] == torch.float16 else "other"].pop(0)

    monkeypatch.setattr(peaks, "milliseconds", milliseconds)
    measured = measured_peaks(torch.device("cpu"), torch.float16)
    assert measured.narrow == pytest.approx(2 * 1024**3 / 1.0)
    assert times == {"product": [], "other": []}


class Oracle:
    """Stands in for an oracle whose device gets faster each time it is measured."""

    device, precision = Device.CPU, Precision.FP32

    def __init__(self):
        self.asked, self.process = 0, self

    def release(self):
        pass

    def step(self, step):
        assert isinstance(step, p.Gauge)
        self.asked += 1
        return p.Gauged(float32=1e9 * self.asked, tf32=1e9 * self.asked, bytes=1e6)


def timing(candidate_ms, reference_ms=2000.0):
    phase = FigureTiming(
        candidate_ms=candidate_ms, reference_ms=reference_ms, speedup=1.0, ci_low=1.0, ci_high=1.0, rounds=7
    )
    return TimingResult(status=StageStatus.PASSED, forward=phase)


@pytest.fixture
def bounded(tmp_path):
    """The timing with bounds by a grader that starts now, and how often it measured the peaks."""

    def bounded(candidate_ms, reference_ms=2000.0, matmul=10**9):
        oracle = Oracle()
        work = p.Counted(forward=p.Work(matmul=matmul))
        roofline = Roofline(tmp_path, lambda _: samples.verdict().environment)
        return roofline.bounds(oracle, work, timing(candidate_ms, reference_ms), tf32=True), oracle.asked

    return bounded


def test_a_possible_time_is_measured_against_once(bounded):
    found, asked = bounded(1001.0)
    assert (found.forward.bound_ms, asked) == (pytest.approx(1000.0), 1)
    assert above_roofline(found) == ()


def test_peaks_are_measured_again_before_anybody_is_suspected(bounded):
    found, asked = bounded(800.0)
    assert (found.forward.bound_ms, asked) == (pytest.approx(500.0), 2)
    assert above_roofline(found) == ()


@pytest.mark.parametrize(("candidate_ms", "reached"), [(480.0, "104%"), (100.0, "500%")])
def test_an_impossible_time_is_for_review(bounded, candidate_ms, reached):
    found, _ = bounded(candidate_ms)
    (diagnosis,) = above_roofline(found)
    assert (diagnosis.code, diagnosis.severity) == ("above_roofline_bound", "warning")
    assert f"{reached} of the roofline" in diagnosis.message


def test_a_bound_that_the_reference_beats_is_not_given(bounded):
    found, _ = bounded(100.0, reference_ms=300.0)
    assert found.forward.bound_ms is None
    assert above_roofline(found) == ()


def test_stored_peaks_serve_later_graders(bounded):
    bounded(1001.0)
    found, asked = bounded(1001.0)
    assert (found.forward.bound_ms, asked) == (pytest.approx(1000.0), 0)


def test_stored_peaks_that_the_reference_is_above_are_measured_again(bounded):
    bounded(1001.0)
    assert bounded(700.0, reference_ms=700.0)[1] == 1


SINES = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, x):
        y = self.layer(x)
        for _ in range(8):  # far from the roofline, on a busy machine too
            y = torch.sin(y)
        return y

def get_inputs():
    return [torch.randn(4096, 64)]

def get_init_inputs():
    return [64]
"""


@pytest.mark.alone
@pytest.mark.slow
def test_a_grading_gives_bounds_and_flags_a_device_that_would_have_to_be_faster(monkeypatch, tmp_path):
    problem = Problem(id="sines", path=tmp_path / "sines.py", source=SINES)
    problem.path.write_text(SINES)
    honest = Submission(author="aa", problem_id="sines", path="x", source=SINES.replace("Model(nn", "ModelNew(nn"))
    with Pipeline(GraderOptions(device="cpu", quick=True)) as grader:
        first = grader.grade(grader.request(problem, honest))
        assert 0 < first.timing.total.bound_ms <= first.timing.total.reference_ms
        assert first.timing.total.bound_ms >= first.timing.forward.bound_ms
        monkeypatch.setattr(roofline, "bound_ms", lambda *_, **__: first.timing.total.candidate_ms * 1e-6)
        assert not [
            d for d in grader.grade(grader.request(problem, honest)).diagnoses if d.code == "above_roofline_bound"
        ]
        slow = Peaks(1.0, 1.0, 1.0, 1)
        monkeypatch.setattr(grader.resources.roofline, "_measure", lambda *_: slow)
        monkeypatch.setattr(roofline, "_with_bounds", lambda timing, *_, **__: _impossible(timing))
        second = grader.grade(grader.request(problem, honest))
    assert second.status == "correct"
    assert [d.code for d in second.diagnoses if d.severity == "warning"] == ["above_roofline_bound"]


def _impossible(timing):
    return timing.model_copy(update={"forward": timing.forward.model_copy(update={"bound_ms": 1e3})})
