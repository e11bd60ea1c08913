"""The reference at full size goes another way than at small ones, to the same values."""

import pytest
import torch

from grader.catalog.problems import find_problems
from grader.errors import ProblemError
from grader.executor import job
from grader.grading import plan
from grader.grading.budget import Budget
from grader.grading.compare.expected import EPSILON
from grader.grading.oracle import capabilities, evaluation, known_mistakes
from grader.grading.oracle import oracle as oracle_module
from grader.grading.oracle.evaluation import MODEL, MODEL64, Pass
from grader.grading.oracle.values import draw_cotangents
from grader.grading.resources import Resources
from grader.machine.backends.cpu import CpuBackend
from grader.verdict.models import Device, Problem
from grader.verdict.precision import Precision
from tests.expected import CASES


@pytest.fixture(scope="module")
def resources():
    with Resources() as made:
        yield made


@pytest.mark.parametrize("problem", ["conv2d_batch_norm_silu", "add_rms_norm_position_ids"])
@pytest.mark.parametrize("model", [MODEL, MODEL64])
def test_results_that_come_back_one_by_one_are_the_same(resources, monkeypatch, problem, model):
    oracle = resources.oracle(find_problems().problem(problem), Device.CPU)
    case = oracle.case("small")
    traits = oracle.traits(case)

    def run():
        oracle.models.ready(case)
        one = Pass(model, case.inputs, case.state, case.cotangents, case.wrt, case.training)
        return next(oracle.models.evaluate_each(traits, [one]))

    at_once = run()
    monkeypatch.setattr(job, "REGION_BYTES", 1)
    one_by_one = run()
    for table in ("outputs", "gradients", "buffers"):
        ours, theirs = getattr(at_once, table), getattr(one_by_one, table)
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert (value is None) == (theirs[name] is None)
            assert value is None or torch.equal(value, theirs[name]), name


def test_large_float64_results_come_back_in_float32(monkeypatch):
    monkeypatch.setattr(evaluation, "LARGE_BYTES", 1)
    with Resources() as resources:
        case = resources.oracle(find_problems().problem("conv2d_batch_norm_silu"), Device.CPU).case("small")
    tensors = [*case.outputs.values(), *case.gradients.values(), *case.buffers.values()]
    floats = [tensor.reference64 for tensor in tensors if tensor is not None and tensor.dtype.is_floating_point]
    assert {tensor.dtype for tensor in floats} == {torch.float32}
    assert len(floats) > 4
    assert any(output.error_max > 0 for output in case.outputs.values()), "float64 ran, and is not the float32 run"


RETURNS = """
import dataclasses
import torch


@dataclasses.dataclass
class Both:
    sine: torch.Tensor
    cosine: torch.Tensor


class Model(torch.nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn(3)]
"""


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("Both(x.sin(), x.cos())", "returns a Both as output; return tensors"),
        ("(x.sin(), Both(x.sin(), x.cos()))", r"returns a Both as output\[1\]; return"),
        ("x.to_sparse()", "returns a sparse tensor as output; return tensors"),
        ("None", "returns no tensor, so that anything would be right"),
        ("{'rows': len(x)}", "returns no tensor, so"),
        (
            "torch.ones(int(x[0].abs() * 1e4)) * x.sum()",
            r"output is \(\d+\) in one call and \(\d+\) in another, for inputs",
        ),
        ("torch.nn.functional.dropout(x)", r"draws random numbers in train\(\) and in eval\(\), so that no value"),
    ],
)
def test_what_nobody_could_compare_is_refused(resources, tmp_path, expression, message):
    source = RETURNS.replace("{expression}", expression)
    oracle = resources.oracle(Problem(id="odd", path=tmp_path / "odd.py", source=source), Device.CPU)
    with pytest.raises(ProblemError, match=message):
        plan.make(oracle, variant=None, quick=True)


SPARSE_BUFFER = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("graph", torch.eye(5).to_sparse())
    def forward(self, x):
        return torch.sparse.mm(self.graph, x)
def get_init_inputs():
    return []
def get_inputs():
    return [torch.randn(5, 4)]
"""


def test_a_sparse_buffer_is_refused(resources, tmp_path):
    oracle = resources.oracle(Problem(id="odd", path=tmp_path / "odd.py", source=SPARSE_BUFFER), Device.CPU)
    with pytest.raises(ProblemError, match="`graph` of the reference is a sparse tensor; register its indices"):
        oracle.case("full")


HIDDEN = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {kept}

    def forward(self, x):
        return {made}


def get_inputs():
    return [torch.randn(5, 4)]
"""


@pytest.mark.parametrize("made", ["torch.tanh(x + self.h0)", "torch.nn.functional.linear(x, self.h0.expand(4, 4))"])
def test_what_a_constructor_draws_is_a_parameter_or_a_buffer(resources, tmp_path, made):
    """Else each model has its own, and a copy of the reference would be wrong. The second does not run in float64."""

    def case(kept):
        source = HIDDEN.replace("{kept}", kept).replace("{made}", made)
        return resources.oracle(Problem(id="odd", path=tmp_path / "odd.py", source=source), Device.CPU).case("full")

    with pytest.raises(
        ProblemError, match="two models with the same parameters and buffers give different outputs; register"
    ):
        case("self.h0 = torch.randn(4)")
    assert case("self.register_buffer('h0', torch.randn(4))").outputs.keys() == {"output"}


COUNTS = """
import itertools

import numpy
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.turns = itertools.count(1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * ({factor})


def get_inputs():
    return [torch.randn(5, 4)]
"""


@pytest.mark.parametrize("factor", ["next(self.turns)", "1 + (next(self.turns) > 1)"], ids=["each", "the first"])
def test_a_counter_that_is_no_buffer_is_refused_as_such(resources, tmp_path, factor):
    """No random number is drawn. With the counter in a buffer, each call begins with the same one."""

    def case(factor):
        source = COUNTS.replace("{factor}", factor)
        return resources.oracle(Problem(id="odd", path=tmp_path / "odd.py", source=source), Device.CPU).case("full")

    with pytest.raises(
        ProblemError, match=r"in train\(\), the outputs change from call to call, .* keeps state between"
    ):
        case(factor)
    assert case("self.calls").values_comparable
    assert not case("1 + numpy.random.rand()").values_comparable


def test_an_output_of_nothing_but_rounding_is_no_difference_between_models(resources, tmp_path):
    source = HIDDEN.replace("{kept}", "").replace("{made}", "x.softmax(-1).sum(-1) - 1")
    oracle = resources.oracle(Problem(id="odd", path=tmp_path / "odd.py", source=source), Device.CPU)
    assert oracle.case("full").values_comparable


RANDOM = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.zero = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x):
        branch = self.linear(x)
        return {made}


def get_inputs():
    return [torch.randn(6, 4)]
"""


@pytest.mark.parametrize(
    ("made", "comparable", "differ"),
    [
        ("x + 1e-6 * torch.dropout(branch, 0.1, self.training)", False, True),
        ("x + 1e-6 * self.norm(branch)", True, True),
        ("x + self.zero * torch.dropout(branch, 0.1, self.training)", False, True),
        ("x + branch * (torch.rand(6, 1) < 0.97) if self.training else x + branch", False, True),
        ("x + branch + 0 * torch.rand(1)", True, False),
        ("x + torch.dropout(branch, 0.0, self.training)", True, False),
    ],
    ids=["in a small branch", "a norm in one", "in a branch that starts at zero", "seldom", "without effect", "never"],
)
def test_modes_and_random_numbers_are_told_in_every_bit(resources, tmp_path, made, comparable, differ):
    """As a gradient has them: in that of a small branch, and in those draws that have it."""
    source = RANDOM.replace("{made}", made)
    if "norm" not in made:
        source = source.replace("self.norm = torch.nn.BatchNorm1d(4)", "")
    oracle = resources.oracle(Problem(id="odd", path=tmp_path / "odd.py", source=source), Device.CPU)
    assert oracle.case("full").values_comparable == comparable
    assert oracle.models.modes_differ("full") == differ


ONCE = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output
"""


@pytest.mark.parametrize(
    ("made", "twice"),
    [("torch.relu(x)", True), ("x * x", True), ("Square.apply(x)", False)],
    ids=["linear in grad_output", "smooth", "once"],
)
def test_whether_gradients_can_be_differentiated_again(resources, tmp_path, made, twice):
    source = RANDOM[: RANDOM.index("        self.linear")] + f"\n    def forward(self, x):\n        return {made}\n"
    source += RANDOM[RANDOM.index("\n\ndef get_inputs") :] + ONCE
    oracle = resources.oracle(Problem(id="twice", path=tmp_path / "twice.py", source=source), Device.CPU)
    assert capabilities.differentiates_twice(oracle, oracle.case("full")) is twice


@pytest.mark.parametrize("values_go", ["a variant's", "all"])
def test_gradients_that_rounding_decides_are_still_checked_after_their_values_went(resources, monkeypatch, values_go):
    """The reason stays, because the full size learns it from fewer rows; it must not pass for a missing backward."""
    path = CASES / "problems" / "norms_over_two.py"
    problem = Problem(id=path.stem, path=path, source=path.read_text())
    resources.drop_oracle(problem, Device.CPU, Precision.FP32)
    oracle = resources.oracle(problem, Device.CPU)

    def checked():
        todo = plan.make(oracle, variant=None, quick=True)
        (note,) = todo.notes
        return note.message[:60], [(noise.variant, noise.training, noise.wrt) for noise in todo.noise]

    before = checked()
    assert "existence and linearity" in before[0]
    assert before[1]
    if values_go == "all":
        with monkeypatch.context() as on_a_device:
            on_a_device.setattr(oracle_module, "KEPT_BYTES", 0)
            on_a_device.setattr(CpuBackend, "own_memory", True)
            oracle.step_back()
    else:
        oracle.cases.forget("full")
    assert not oracle.cases.not_compared.noise
    assert checked() == before


@pytest.mark.parametrize(("seconds", "in_float64"), [(1e-3, False), (1e4, True)])
def test_a_full_size_is_in_float64_if_that_takes_little_time_or_there_are_no_fewer_rows(tmp_path, seconds, in_float64):
    source = (
        "import torch\n\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.softmax(x, 1)\n\n"
        "def get_inputs():\n    return [torch.rand({rows}, {columns})]\n"
    )

    def rounding(columns):
        """Of a sum of so many terms, whose order is the processor's."""
        return (32 + columns**0.5) * EPSILON

    def ran(rows, columns):
        path = tmp_path / f"rows{rows}.py"
        problem = Problem(id=path.stem, path=path, source=source.format(rows=rows, columns=columns))
        oracle = resources.oracle(problem, Device.CPU)
        case = oracle.case("full")
        return oracle.models.has_fewer_rows, oracle.exact_seconds(case) > 0, case.outputs["output"]

    with Resources(budget=Budget(seconds)) as resources:
        few, exact, output = ran(64, 1 << 16)
        assert (few, exact) == (True, in_float64)
        assert 0 < output.error_l2 < rounding(1 << 16) * output.norm, "the errors of the fewer rows stand in"
        few, _, output = ran(2, 1 << 21)
        assert (few, 0 < output.error_l2 < rounding(1 << 21) * output.norm) == (False, True)


@pytest.mark.parametrize(("free", "in_float64"), [(0, False), (1 << 40, True)])
def test_where_a_gpu_has_no_room_for_float64_the_float32_run_stands_in(tmp_path, monkeypatch, free, in_float64):
    """Without fewer rows too: an attention over many positions takes gigabytes for inputs of megabytes."""
    source = (
        "import torch\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.linear = torch.nn.Linear(64, 64)\n\n"
        "    def forward(self, x):\n        return torch.softmax(self.linear(x), 1)\n\n"
        "def get_inputs():\n    return [torch.randn(2, 64)]\n"
    )
    problem = Problem(id="short", path=tmp_path / "short.py", source=source)
    with Resources() as resources:
        oracle = resources.oracle(problem, Device.CPU)
        monkeypatch.setattr(CpuBackend, "own_memory", True)
        monkeypatch.setattr(CpuBackend, "allocatable_bytes", lambda self: free)
        case = oracle.case("full")
        assert (oracle.runs_float64(case), oracle.exact_seconds(case) > 0) == (in_float64, in_float64)
        assert all(
            0 < result.error_l2 < 1e-5 * result.norm for result in (case.outputs["output"], case.gradients["input[0]"])
        )
        others = draw_cotangents(case.cotangents, Device.CPU)
        assert bool(known_mistakes.gradients(oracle, case, "none", others)) is in_float64


def test_a_backward_that_raises_at_full_size_is_asked_of_fewer_rows_again(tmp_path):
    """Else any backward would be right for the submissions that follow, after the case of fewer rows was dropped."""
    source = (
        "import torch\n\nclass Limited(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n"
        "    @staticmethod\n    def backward(ctx, g):\n"
        "        if len(g) > 32:\n            raise RuntimeError('CUDA error: invalid argument')\n"
        "        return g * 2\n\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return Limited.apply(x)\n\n"
        "def get_inputs():\n    return [torch.rand(64, 1 << 16)]\n"
    )
    with Resources() as resources:
        oracle = resources.oracle(Problem(id="part", path=tmp_path / "part.py", source=source), Device.CPU)
        assert (oracle.case("rows").wrt, oracle.case("full").wrt) == (("input[0]",), ())
        oracle.cases.forget("rows")
        assert oracle.case("rows").wrt == ("input[0]",)


def test_passes_that_share_large_parameters_make_one_job(resources, monkeypatch):
    """Each would be a job of its own if the parameters counted in each."""
    oracle = resources.oracle(find_problems().problem("conv2d_batch_norm_silu"), Device.CPU)
    case = oracle.case("small")
    traits, one = oracle.traits(case), Pass(MODEL, oracle.case("small").inputs, oracle.case("small").state)
    monkeypatch.setattr(evaluation, "LARGE_BYTES", 4 * one.returned_bytes(traits))
    sizes, in_one_job = [], evaluation._in_one_job

    def counted(reference, traits, passes, streamed):
        sizes.append(len(passes))
        yield from in_one_job(reference, traits, passes, streamed)

    monkeypatch.setattr(evaluation, "_in_one_job", counted)
    oracle.models.ready(case)
    results = list(oracle.models.evaluate_each(traits, [one] * 7))
    assert sizes == [5, 2]
    for result in results:
        assert torch.equal(result.outputs["output"], results[0].outputs["output"])
