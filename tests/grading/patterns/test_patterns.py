"""Patterns of wrong gradients: each is found, and none is found in rounding or in noise."""

from types import SimpleNamespace

import pytest
import torch

from grader.errors import ReferenceLost
from grader.grading.budget import Budget
from grader.grading.compare.expected import Expected
from grader.grading.compare.ties import Ties
from grader.grading.oracle import known_mistakes
from grader.grading.oracle.case import Case
from grader.grading.patterns import pattern, search
from grader.grading.patterns.elementwise import overwritten
from grader.grading.patterns.pattern import Subject
from grader.grading.patterns.regions import RARE, at_zeros, border, vague_region
from grader.grading.patterns.search import SEARCHES, _survived, at_ties, patterns_by_runs
from grader.grading.patterns.terms import missing_factor, single_term
from grader.grading.patterns.unwritten import unwritten
from grader.grading.resources import Resources
from grader.verdict.models import Device, Problem
from tests.expected import CASES

ROWS, COLUMNS = 12, 16


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """Where the tensors of examples are searched."""
    monkeypatch.setattr(Example, "device", request.param)


class Example:
    """y = x * scale, with a grad_output, its gradient of x, and an index of each row."""

    device = "cpu"

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x, self.g, self.right = (torch.randn(ROWS, COLUMNS, generator=generator).double() for _ in range(3))
        self.scale = torch.rand(COLUMNS, generator=generator).double() + 0.5
        self.target = torch.randint(0, COLUMNS, (ROWS,), generator=generator)

    def found(self, actual, right=None, searches=SEARCHES):
        """The text of the first pattern in a gradient of x; None without one."""
        subject = self.subject(actual, self.right if right is None else right)
        found = (search(subject) for search in searches)
        return next((pattern.text for pattern in found if pattern is not None), None)

    def subject(self, actual, right, outputs=None):
        expected = Expected("x", tuple(right.shape), torch.float32, right, 1e-6, 1e-7, 1.0)
        case = Case(
            variant="small",
            training=True,
            seed=0,
            init_inputs=[],
            inputs=(self.x.float(), self.target),
            state={"scale": self.scale.float()},
            cotangents={"output": self.g.float()},
            outputs={
                name: Expected(name, (ROWS, COLUMNS), torch.float32, output) for name, output in (outputs or {}).items()
            },
            buffers={},
            gradients={"input[0]": expected},
            operand_names={"input[0]": "x", "input[1]": "target"},
        )
        with pytest.MonkeyPatch.context() as patch:
            if self.device != "cpu":
                patch.setattr(pattern, "MAX_ELEMENTS", 0)  # so that it is searched as a large one is
            subject = Subject(case, actual.float().to(self.device), expected, "input[0]")
        assert subject.wrong.device.type == self.device
        return subject


def where(mask, value):
    return lambda e: torch.where(mask(e), value(e), e.right)


def columns(e):
    return torch.arange(COLUMNS).expand(ROWS, COLUMNS)


def rows(e):
    return torch.arange(ROWS)[:, None].expand(ROWS, COLUMNS)


def zeros(e):
    return torch.zeros(ROWS, COLUMNS).double()


def centred(e):
    return e.x - e.x.mean(1, keepdim=True)


def each_row(e):
    return torch.linspace(0.5, 3, ROWS).double()[:, None]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (where(lambda e: columns(e) >= 13, zeros), "is zero at the last 3 of 16 columns (13 and up), and right"),
        (where(lambda e: rows(e) == 0, zeros), "is zero at row 0 (the first of 12), and right elsewhere"),
        (where(lambda e: columns(e) % 2 == 1, zeros), "is zero at every second of the columns, from 1, and right"),
        (where(lambda e: e.x < 0, zeros), "is zero where `x` < 0, and right elsewhere"),
        (where(lambda e: e.x < 0, lambda e: 0.1 * e.right), "is 1/10 times the reference's where `x` < 0, and right"),
        (where(lambda e: e.x.abs() > 1, lambda e: -e.right), "is of the wrong sign where |`x`| > 1, and right"),
        (lambda e: e.right.flip(1), "is the right one flipped along dimension 1"),
        (lambda e: e.right.T.reshape(ROWS, COLUMNS), "is the right one transposed, in memory order"),
        (lambda e: e.right.roll(1, 0), "is the right one shifted by 1 along dimension 0"),
        (lambda e: torch.cat([e.x[:, :2], e.right[:, :-2]], 1), "is the right one shifted by 2 along dimension 1"),
        (lambda e: e.right.sum(0, True).expand(ROWS, -1), "is the sum over dimension 0 of the right one, at each"),
        (lambda e: e.right.mean().expand(ROWS, COLUMNS), "is the mean over dimensions 0 and 1 of the right"),
        (lambda e: 1e-6 * e.g, "is close to zero, at most "),
        (lambda e: e.g, "is grad_output alone"),
        (lambda e: e.g * e.scale, "is grad_output * `scale` alone"),
        (lambda e: e.right - e.g, "lacks grad_output"),
        (lambda e: e.right + 3 * e.g, "has 3 times grad_output too much"),
        (lambda e: e.right * e.scale, "has the factor `scale` once too often"),
        (lambda e: e.right / e.scale, "is the right one divided by `scale`"),
        (lambda e: e.right + each_row(e), "is off by the same amount within each row"),
        (lambda e: e.right * each_row(e), "is off by one factor within each row, from 0.5 to 3"),
        (lambda e: e.right + each_row(e) * e.x, "is off by a multiple of `x` within each row"),
        (lambda e: e.right + each_row(e) * centred(e), "is off by a multiple of `x` minus its mean within each row"),
        (lambda e: e.right + each_row(e) * e.x + each_row(e).flip(0), "is off by a constant plus a multiple of `x`"),
    ],
)  # fmt: skip
def test_a_pattern_is_found(seed, fault, text):
    example = Example(seed)
    assert (example.found(fault(example)) or "none").startswith(text)


@pytest.mark.parametrize("seed", range(3))
def test_zeros_of_both_sides_do_not_move_a_limit(seed):
    """Behind a ReLU, the elements next to the limit may all be zero."""
    example = Example(seed)
    right = torch.where((example.x < 0) & (example.x > -0.3), 0.0, example.right)
    actual = torch.where(example.x < 0, -right, right)
    assert example.found(actual, right).startswith("is of the wrong sign where `x` < 0, and right elsewhere")


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_zeros_have_no_factor(seed):
    """As behind a mask: anything is a multiple of them."""
    example = Example(seed)
    right = torch.where(rows(example) % 4 == 3, 0.0, example.right)
    found = example.found(right * each_row(example), right)
    assert found.startswith("is off by one factor within each row, from 0.5 to 2.773")


@pytest.mark.parametrize("seed", range(5))
def test_a_missing_mask_is_no_overwritten_sum(seed):
    """Both leave single elements of grad_output; behind the mask there should be none."""
    example = Example(seed)
    masked = torch.where(example.x > 0, example.g, 0.0)
    assert example.found(example.g, masked).startswith("is not zero, as it is in the reference, where `x` < 0")


@pytest.mark.parametrize("seed", range(5))
def test_a_list_of_indices_is_one_of_whole_slices(seed):
    """Single elements that are wrong for their values say nothing about loops."""
    example = Example(seed)
    chosen = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))[:4]
    few = example.right.clone()
    few[chosen, chosen] += 1
    assert example.found(few, searches=[vague_region]) is None
    slices = example.right.clone()
    slices[:, chosen] += 1 + example.x[:, chosen].abs()
    assert "4 of 16 columns" in (example.found(slices, searches=[vague_region]) or "")


@pytest.mark.parametrize("seed", range(5))
def test_what_should_be_nothing_is_no_multiple_of_it(seed):
    """A bias before a norm has a gradient of rounding errors: no factor makes it of a wrong one."""
    example = Example(seed)
    wrong = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(seed + 50)).double()
    assert example.found(wrong, 1e-9 * example.right) is None


def test_one_element_that_is_not_zero_is_no_multiple_of_a_tensor():
    """As of a bias in front of a ReLU that lets one element of a batch pass."""
    example, one = Example(0), zeros(None)
    one[3, 4] = 1.0
    assert example.found(0.3 * one, one, searches=[single_term, missing_factor]) is None


@pytest.mark.parametrize("seed", range(20))
def test_noise_has_no_pattern(seed):
    example = Example(seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    noise = torch.randn(ROWS, COLUMNS, generator=generator).double()
    for size in (1e-3, 0.1, 10.0):
        assert example.found(example.right + size * noise) is None
    assert example.found(noise) is None


@pytest.mark.parametrize("seed", range(5))
def test_positions_that_an_index_names(seed):
    example = Example(seed)
    named = torch.nn.functional.one_hot(example.target, COLUMNS).double()
    assert example.found(example.right + 0.25 * named).startswith(
        "is off by 0.25 in each element at the positions along dimension 1 that `target` names"
    )


def test_overwritten_contributions():
    example = Example(0)
    right = torch.zeros(COLUMNS, COLUMNS).double().index_add_(0, example.target, example.g)
    actual = torch.zeros(COLUMNS, COLUMNS).double()
    for row, target in enumerate(example.target):
        actual[target] = example.g[row]
    assert example.found(actual, right).startswith("holds a single element of grad_output wherever it is wrong")


@pytest.mark.parametrize(("missed", "named"), [(0, True), (1, True), (40, False)])
def test_a_fault_at_ties_is_named_though_the_runs_chose_all_but_one_of_them(missed, named):
    """Each of the wrong elements is tied with another; `missed` of them were chosen in no run."""
    right = torch.randn(ROWS, COLUMNS).double()
    right[right.abs() < 0.1] = 0.1
    chosen = right * 1.5
    chosen.view(-1)[:missed] = right.view(-1)[:missed]
    tied = Ties(lambda: [right, chosen], torch.zeros(ROWS, COLUMNS).double())
    expected = Expected("x", (ROWS, COLUMNS), torch.float32, right, 1e-6, 1e-7, 1.0, ties=tied)
    subject = Subject(None, 2 * right, expected, "input[0]")
    found = at_ties(subject)
    assert (found is not None) is named


def test_a_term_that_is_no_part_of_the_gradient_is_not_called_one():
    """Square tensors: a sum over the wrong dimension has the right shape."""
    side = 14
    x, g = (torch.randn(side, side).double() for _ in range(2))
    case = SimpleNamespace(
        cotangents={"output": g.float()},
        inputs=(x.float(),),
        state={},
        outputs={},
        gradients={},
        operand_names={"input[0]": "x"},
    )
    expected = Expected("s", (side,), torch.float32, (g * x).sum(1), 1e-6, 1e-7, 1.0)
    found = single_term(Subject(case, 3 * (g * x).sum(0), expected, "s"))
    assert found.text == "is 3 times the sum over dimension 0 of grad_output * `x` alone"
    assert found.remedy == "return the sum over dimension 1 of grad_output * `x`"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda h, g: h, "lacks the grad_output of g wherever it is wrong"),
        (lambda h, g: g, "lacks the grad_output of h wherever it is wrong"),
    ],
)
def test_what_lacks_another_outputs_gradient_is_not_called_overwritten(wrong, text):
    h, g = (torch.randn(9, 8).double() for _ in range(2))
    rows = torch.arange(12) % 9
    right, actual = (h + g)[rows], wrong(h, g)[rows]
    actual[:3] = right[:3]
    given = {"h": h, "g": g}
    case = SimpleNamespace(cotangents=given, inputs=(), state={}, outputs={}, gradients={}, operand_names={})
    expected = Expected("x", tuple(right.shape), torch.float32, right, 1e-9, 1e-9, 1.0)
    assert overwritten(Subject(case, actual, expected, "x")).text == text


@pytest.mark.parametrize("seed", range(5))
def test_rows_where_an_index_exceeds_a_limit(seed):
    example = Example(seed)
    example.target = torch.arange(ROWS).roll(seed) % 6
    actual = torch.where(example.target[:, None] >= 4, example.right + example.x, example.right)
    found = example.found(actual, searches=[vague_region])
    assert found == "is wrong in the rows where `target` >= 4, and right elsewhere"


def test_zeros_of_both_sides_are_no_region():
    example = Example(0)
    right = torch.where(torch.arange(ROWS)[:, None] == 0, 0.0, example.right)
    assert example.found(right * (1 + example.x), right, searches=[vague_region]) is None


def test_smaller_errors_elsewhere_are_no_region():
    example = Example(0)
    inner = (torch.arange(ROWS) > 0) & (torch.arange(ROWS) < ROWS - 1)
    error = 1.2e-5 * (1 + torch.rand(ROWS, COLUMNS)) * torch.where(inner, 1.0, 0.4)[:, None]
    assert example.found(example.right + error, searches=[vague_region]) is None
    large = torch.where(inner[:, None], 1e5 * error, error)
    assert example.found(example.right + large * (torch.rand(ROWS, COLUMNS) < 0.8), searches=[vague_region]) is not None


def test_a_masked_grad_output_is_not_called_overwritten():
    example = Example(0)
    mask = example.x > 0
    right = torch.where(mask, example.g * torch.where(torch.arange(COLUMNS) == 3, 1.0, example.scale + 1), 0.0)
    assert example.found(torch.where(mask, example.g, 0.0), right, searches=[overwritten]) is None


def test_errors_that_vanish_with_the_elements_are_no_region():
    example = Example(0)
    right = example.right * 10.0 ** -(torch.arange(COLUMNS) // 2).double()
    assert example.found(right * (1 + 0.5 * example.x), right, searches=[vague_region]) is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (
            lambda e: (rows(e) < 2) | (columns(e) < 3),
            "is wrong on the border: at the first 2 of 12 rows or the first 3 of 16 columns, and right elsewhere",
        ),
        (
            lambda e: (rows(e) < 1) | (columns(e) < 1) | (columns(e) > 13),
            "is wrong on the border: at row 0 (the first of 12) or 3 of 16 columns (0, 14, 15), and right elsewhere",
        ),
        (
            lambda e: (rows(e) < 1) | (rows(e) > 10) | (columns(e) < 1) | (columns(e) > 14),
            "is wrong on the border along dimensions 0 and 1, 1 wide, and right elsewhere",
        ),
    ],
)
def test_a_border_of_one_side_or_of_both(seed, inside, text):
    """Behind a ReLU, an element of the border may be zero on both sides: that one is not right."""
    example = Example(seed)
    right = torch.where(example.x > 0, example.right, 0.0)
    actual = torch.where(inside(example), right * (0.5 + example.g.abs()), right)
    assert example.found(actual, right) == text


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ([1, 0, *range(2, ROWS)], "that of 1 at 0, that of 0 at 1"),
        (
            [*range(4, 8), *range(4), *range(8, ROWS)],
            "parts 0 and 1 of 3 are exchanged",
        ),
        (
            [*range(3), *range(5, 7), *range(3, 5), *range(7, ROWS)],
            "those of 5 to 6 at 3 to 4, those of 3 to 4 at 5 to 6",
        ),
        (
            [3 * i % ROWS + 3 * i // ROWS for i in range(ROWS)],
            "that of 3 at 1, that of 6 at 2, that of 9 at 3, that",
        ),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_rows_in_another_order(order, text, noise):
    e = Example(3)
    found = e.found(e.right[order] + noise * torch.randn(ROWS, COLUMNS))
    assert found.startswith(f"has the right values in another order along dimension 0: {text}")


def test_of_long_rows_no_product_is_made_that_is_larger():
    e = Example(3)
    e.x, e.g, right = (torch.randn(2, 1 << 18).double() for _ in range(3))
    assert e.found(right + e.g, right, searches=[single_term]) == "has grad_output too much"


def test_values_at_other_places_of_their_rows():
    e = Example(3)
    sparse = torch.where(e.x == e.x.amax(1, keepdim=True), e.right, 0.0)
    found = e.found(sparse.gather(1, torch.rand(ROWS, COLUMNS).argsort(1)), sparse)
    assert found == "has the right values at other places along dimension 1"


def test_like_values_are_no_others_places():
    long = [torch.rand(1, 4096, generator=torch.Generator().manual_seed(seed)).expand(ROWS, -1) for seed in (1, 2)]
    assert "other places" not in (Example(3).found(*long) or "")


def test_other_rows_are_in_no_order():
    e = Example(3)
    assert e.found(e.g) != e.found(e.right[[1, 0, *range(2, ROWS)]])
    assert "another order" not in (e.found(torch.randn(ROWS, COLUMNS)) or "")


def test_a_mean_without_its_divisor_overwrites_nothing():
    e, counts = Example(6), torch.arange(1, ROWS + 1).double()[:, None]
    assert overwritten(e.subject(e.g[e.target % ROWS], e.g[e.target % ROWS] / counts)) is None


@pytest.mark.parametrize(
    ("name", "shape", "place", "remedy"),
    [
        ("gates", (3, 64), (2,), "check what is computed from that one of 3 alone, as of a gate or a head"),
        ("input[0]", (3, 64), (2,), "check the loop bounds there"),
        ("filters", (4, 16, 3), (slice(None), slice(None), 2), "check the loop bounds there"),
        ("input[0]", (4, 6, 8), (1, slice(4, None), slice(4)), RARE),
    ],
)
def test_what_a_place_points_to_depends_on_the_tensor(name, shape, place, remedy):
    e = Example(9)
    right = e.right.view(shape)
    actual = right.clone()
    actual[place] += e.g.view(shape)[place]
    subject = e.subject(actual, right)
    subject.name = name
    assert vague_region(subject).remedy == remedy


def test_all_but_a_part_of_one_sample_is_no_border():
    e = Example(9)
    right = e.right.view(2, 6, 16)
    actual = right + e.g.view(2, 6, 16)
    actual[1, 3:] = right[1, 3:]
    assert border(e.subject(actual, right)) is None
    padded = right + e.g.view(2, 6, 16)
    padded[:, 1:, 2:] = right[:, 1:, 2:]
    assert border(e.subject(padded, right)).text.startswith("is wrong on the border: at index 0 of dimension 1")


def test_one_wrong_element_is_named_unless_rounding_surrounds_it():
    e = Example(8)
    at = (rows(e) == 7) & (columns(e) == 5)
    wrong = torch.where(at, e.right + 1, e.right)
    assert e.found(wrong, searches=[vague_region]) == "is wrong in the element [7, 5] alone"
    assert e.found(wrong.bfloat16(), searches=[vague_region]) is None


@pytest.mark.parametrize(("zeros", "found"), [(0, True), (COLUMNS - 2, False)])
def test_elements_that_no_thread_writes_need_others_that_tell_something(zeros, found):
    e = Example(1)
    right = torch.where(torch.arange(COLUMNS) < zeros, 0.0, e.right[0])  # a channel that is off has no gradient
    tail = torch.arange(COLUMNS) >= COLUMNS - 2
    runs = [torch.where(tail, torch.randn(COLUMNS).double(), right).float() for _ in range(3)]
    subject = e.subject(right, right)
    pattern = unwritten(subject.case, "input[0]", subject.expected, runs)
    assert (pattern is not None) == found
    if pattern is not None:
        assert (
            pattern.text
            == "at the last 2 of 16 indices of dimension 0 (14 and up) only, where each call finds something else"
        )


@pytest.mark.parametrize("seed", range(3))
def test_elements_that_a_mask_leaves_out_on_one_side_only(seed):
    example = Example(seed)
    masked = torch.where(torch.rand(ROWS, COLUMNS) < 0.3, 0, example.right)
    count = int((masked == 0).sum())
    more = example.found(example.right + 1e-3 * (masked == 0), masked, [at_zeros])
    assert more == f"is not zero in {count} of 192 elements that are zero in the reference, and right elsewhere"
    less = example.found(masked, example.right, [at_zeros])
    assert less == f"is zero in {count} of 192 elements that are not zero in the reference, and right elsewhere"
    assert example.found(1.1 * masked, masked, [at_zeros]) is None
    assert example.found(0 * masked, masked, [at_zeros]) is None


def test_slips_end_where_the_reference_does_not_survive_one():
    def made():
        yield "one"
        raise ReferenceLost("it ended")

    assert [*_survived(made())] == ["one"]


def test_runs_of_the_reference_serve_all_gradients_and_end_with_the_time(monkeypatch):
    """Each of a deep network's gradients once had runs of its own, which took three minutes for a ResNet18."""
    path = CASES / "problems" / "many_linears.py"
    runs, gradients = [], known_mistakes.reference_gradients

    def counted(*given):
        runs.append(given)
        return gradients(*given)

    with Resources(budget=Budget(1e4)) as resources:
        oracle = resources.oracle(Problem(id=path.stem, path=path, source=path.read_text()), Device.CPU)
        case = oracle.case("full")
        wrong = {
            name: gradient.reference64.float() + torch.randn(gradient.shape)
            for name, gradient in case.gradients.items()
        }
        monkeypatch.setattr(known_mistakes, "reference_gradients", counted)
        monkeypatch.setattr(search, "slips", lambda *_: iter(()))  # which have a time of their own
        assert patterns_by_runs(oracle, case, wrong, lambda _: {}, {}) == {}
        assert 0 < len(runs) < len(case.wrt)
        before = len(runs)
        oracle.budget = Budget(0.0)
        patterns_by_runs(oracle, case, wrong, lambda _: {}, {})
        assert len(runs) - before < before
