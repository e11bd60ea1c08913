"""The classifier on random operations and random faults: it names the fault, and is silent where there is none."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.grading.backward import describe as describer
from grader.grading.backward.classify import classify
from grader.grading.backward.describe import describe, with_patterns
from grader.grading.budget import Budget
from grader.grading.candidate.vjp import Product
from grader.grading.compare import blocks
from grader.grading.compare.expected import EPSILON, Expected
from grader.grading.compare.scaling import scale_of
from grader.grading.oracle.case import Case
from grader.grading.patterns.pattern import NOTHING, within_time

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

seeds = st.integers(0, 2**31 - 1)
extents = st.integers(2, 24)
magnitudes = st.sampled_from([1e-6, 1e-2, 1.0, 1e3, 1e7])
ELEMENTWISE = (torch.tanh, torch.sigmoid, torch.nn.functional.gelu, torch.nn.functional.silu, torch.sin, torch.exp)


class Example:
    """y = f(x w + b), differentiated in float64 (the reference), and in float32 in two orders of summation."""

    def __init__(self, seed, rows, inner, columns, magnitude, function):
        self.generator = torch.Generator().manual_seed(seed)
        self.function = function
        self.operands = {
            "input[0]": self.draw(rows, inner),
            "weight": self.draw(inner, columns) / math.sqrt(inner),
            "bias": self.draw(columns),
        }
        self.cotangent = self.draw(rows, columns) * magnitude
        self.reference64 = self.gradients(torch.float64)
        self.eager = self.gradients(torch.float32)

    def draw(self, *shape):
        return torch.randn(shape, generator=self.generator)

    def gradients(self, dtype, order=None):
        """By operand; `order` permutes the rows and the inner dimension, and so every sum behind a gradient."""
        x, weight, bias = (value.to(dtype).requires_grad_() for value in self.operands.values())
        rows, inner = order or (slice(None), slice(None))
        y = self.function(x[rows][:, inner] @ weight[inner] + bias)
        found = torch.autograd.grad(y, (x, weight, bias), self.cotangent.to(dtype)[rows])
        return dict(zip(self.operands, found, strict=True))

    def reordered(self):
        """In float32, with all sums in another order."""
        rows, inner = self.operands["input[0]"].shape
        return self.gradients(
            torch.float32,
            (torch.randperm(rows, generator=self.generator), torch.randperm(inner, generator=self.generator)),
        )

    def case(self, none=()):
        """Expected as the reference oracle makes it; operands of `none` have no gradient there."""
        expected = {}
        for name, reference64 in self.reference64.items():
            runs = blocks.baseline_errors([run[name] for run in (self.eager, self.reordered())], [reference64] * 2)
            error_l2, error_max = (max(figures) for figures in zip(*runs, strict=True))
            expected[name] = Expected(
                label(name), tuple(reference64.shape), torch.float32, reference64, error_l2, error_max, self.longest
            )
        return Case(
            variant="small",
            training=True,
            seed=0,
            init_inputs=[],
            inputs=(self.operands["input[0]"],),
            state={name: self.operands[name] for name in ("weight", "bias")},
            cotangents={"output": self.cotangent},
            outputs={},
            buffers={},
            gradients={name: None if name in none else value for name, value in expected.items()},
            operand_names={name: label(name) for name in expected},
        )

    @property
    def longest(self):
        return float(max(max(value.shape) for value in self.operands.values()))


def label(name):
    return "x" if name == "input[0]" else name


examples = st.builds(Example, seeds, extents, extents, extents, magnitudes, st.sampled_from(ELEMENTWISE))
operands = st.sampled_from(["input[0]", "weight", "bias"])


def faults_of(example, changed, none=(), misshapen=None):
    return classify(example.case(none), Product({**example.reordered(), **changed}, misshapen or {}))[1]


@EXAMPLES
@given(examples)
def test_silent_for_another_order_of_summation(example):
    checks, faults = classify(example.case(), Product(example.reordered(), {}))
    assert faults == []
    assert [check.status for check in checks] == ["passed"] * 3


@EXAMPLES
@given(examples, seeds)
def test_silent_for_rounding_noise(example, seed):
    generator = torch.Generator().manual_seed(seed)
    noisy = {
        name: (value * (1 + EPSILON * torch.randn(value.shape, generator=generator))).float()
        for name, value in example.reference64.items()
    }
    assert faults_of(example, noisy) == []


@EXAMPLES
@given(examples, operands)
def test_names_a_zeroed_gradient(example, name):
    faults = faults_of(example, {name: torch.zeros_like(example.eager[name])})
    assert [(fault.code, fault.name) for fault in faults] == [("grad_zero", name)]


@EXAMPLES
@given(
    examples,
    operands,
    st.sampled_from([2.0, -1.0, 0.5, 3.0, -2.0, 1 / 3, 1 / 64, 1 / 1000, 128.0, 0.7, 1.01, 0.999, 1.0005]),
)
def test_names_the_factor(example, name, factor):
    faults = faults_of(example, {name: (example.eager[name] * factor)})
    assert [(fault.code, fault.name) for fault in faults] == [("grad_scaled", name)]
    assert faults[0].factor == pytest.approx(factor, rel=1e-3)


@EXAMPLES
@given(examples, operands, st.data())
def test_names_one_perturbed_element(example, name, data):
    value = example.eager[name].clone()
    position = data.draw(st.integers(0, value.numel() - 1))
    value.view(-1)[position] += 0.5 * example.reference64[name].abs().max()
    faults = faults_of(example, {name: value})
    assert [(fault.code, fault.name) for fault in faults] in (
        [[("grad_wrong", name)]] if value.numel() > 2 else [[("grad_wrong", name)], [("grad_scaled", name)]]
    )
    if faults[0].code == "grad_wrong":
        worst = [int(i) for i in torch.unravel_index(torch.tensor(position), value.shape)]
        assert f"worst at {worst}" in faults[0].amount


@EXAMPLES
@given(seeds, extents, st.integers(3, 24), magnitudes, st.sampled_from(ELEMENTWISE))
def test_names_gradients_in_each_others_place_whatever_their_shapes(seed, size, inner, magnitude, function):
    example = Example(seed, size, inner, size, magnitude, function)
    x, weight = example.eager["input[0]"], example.eager["weight"]
    faults = faults_of(example, {"input[0]": weight.reshape(x.shape), "weight": x.reshape(weight.shape)})
    assert [(fault.code, fault.text) for fault in faults] == [
        ("grad_wrong", "that of `weight`"),
        ("grad_wrong", "that of `x`"),
    ]


@EXAMPLES
@given(examples, operands)
def test_names_a_missing_gradient(example, name):
    faults = faults_of(example, {name: None})
    code = "input_grad_none" if name == "input[0]" else "param_grad_none"
    assert [(fault.code, fault.name) for fault in faults] == [(code, name)]


@EXAMPLES
@given(examples, operands, st.sampled_from([math.nan, math.inf, -math.inf]), st.data())
def test_names_nan_and_infinity(example, name, special, data):
    value = example.eager[name].clone()
    position = data.draw(st.integers(0, value.numel() - 1))
    value.view(-1)[position] = special
    faults = faults_of(example, {name: value})
    assert [(fault.code, fault.name) for fault in faults] == [("grad_nan", name)]
    assert f"in 1 of {value.numel()} elements" in faults[0].text


@EXAMPLES
@given(examples, operands)
def test_names_a_gradient_where_the_reference_has_none(example, name):
    assert [fault.code for fault in faults_of(example, {}, none=(name,))] == ["unexpected_gradient"]
    assert faults_of(example, {name: None}, none=(name,)) == []
    assert faults_of(example, {name: torch.zeros_like(example.eager[name])}, none=(name,)) == []


@EXAMPLES
@given(examples, st.permutations(["input[0]", "weight", "bias"]), st.sampled_from([2.0, -1.0]))
def test_names_several_faults_at_once(example, order, factor):
    zero, scaled, missing = order
    changed = {zero: torch.zeros_like(example.eager[zero]), scaled: example.eager[scaled] * factor, missing: None}
    faults = faults_of(example, changed)
    assert {fault.name: fault.code.removeprefix("input_").removeprefix("param_") for fault in faults} == {
        zero: "grad_zero",
        scaled: "grad_scaled",
        missing: "grad_none",
    }
    messages = [diagnosis.message for diagnosis in describe(faults, "small")]
    assert all(any(f"`{label(name)}`" in message for message in messages) for name in order)


@EXAMPLES
@given(seeds, st.integers(-40, 40).filter(lambda whole: abs(whole) > 1), st.booleans())
def test_a_single_number_is_scaled_by_whole_numbers_only(seed, whole, inverse):
    value = torch.randn(1, generator=torch.Generator().manual_seed(seed)).double()
    factor = 1 / whole if inverse else float(whole)
    assert scale_of((value * factor).float(), value) == pytest.approx(factor, rel=1e-4)
    assert scale_of((value * (abs(whole) + 0.37)).float(), value) is None


def test_messages_say_the_same_thing_once():
    example = Example(1, 6, 5, 4, 1.0, torch.tanh)
    doubled = {name: example.eager[name] * 2 for name in ("weight", "bias")}
    [diagnosis] = describe(faults_of(example, doubled), "small")
    assert diagnosis.message == (
        "gradients of `weight` and `bias` are 2 times the reference's (variant small): "
        "remove the factor 2, or look for a term that is added more than once"
    )


def test_of_several_wrong_gradients_the_first_is_described_in_full():
    example = Example(1, 6, 5, 4, 1.0, torch.tanh)
    changed = {name: example.eager[name] + torch.randn(example.eager[name].shape) for name in ("weight", "bias")}
    [diagnosis] = describe(faults_of(example, changed), "small")
    assert diagnosis.message.startswith("gradient of `weight` is wrong in ")
    assert "; `bias` is wrong too (variant small), relative error " in diagnosis.message
    assert "no pattern was found in the error" in diagnosis.message


FULL = SimpleNamespace(budget=Budget())
"""What an oracle says where no pattern is looked for."""


def test_without_a_pattern_the_time_of_a_short_search_is_named():
    text = f"{NOTHING}; look"
    assert within_time(text, Budget(15.0)) == text
    assert within_time(text, Budget(3.0)) == f"{NOTHING} in 1 s (with more seconds it goes on); look"


def test_without_a_pattern_the_gradients_that_are_right_say_where_to_look(monkeypatch):
    example = Example(1, 6, 5, 4, 1.0, torch.tanh)
    monkeypatch.setattr(describer, "find_pattern", lambda *_: None)
    monkeypatch.setattr(describer, "confirmed_roundings", lambda *_, **__: {})
    monkeypatch.setattr(describer, "patterns_by_runs", lambda *_: {})
    wrong = {"bias": example.eager["bias"] + torch.randn(example.eager["bias"].shape)}
    product = Product({**example.reordered(), **wrong}, {})
    faults = with_patterns(None, FULL, example.case(), faults_of(example, wrong), product)
    [diagnosis] = describe(faults, "small")
    assert "gradients of `x` and `weight` are right: look in the steps that they do not need" in diagnosis.message


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_two_single_numbers_are_no_multiples_by_chance(shape):
    one = torch.full(shape, 3.0, dtype=torch.float64)
    assert scale_of(one * (1 + 6e-5), one) is None
    assert scale_of(one * 1.37, one) is None
    assert scale_of(one * -26.0005, one) is None
    assert scale_of(one / 16, one) == pytest.approx(1 / 16)


def test_what_is_unexplained_is_wrong_for_the_reason_that_is_known():
    example = Example(1, 6, 5, 4, 1.0, torch.tanh)
    bias = example.eager["bias"]
    changed = {"weight": example.eager["weight"] * 2, "bias": bias + torch.randn(bias.shape)}
    [diagnosis] = describe(faults_of(example, changed), "small")
    assert diagnosis.code == "grad_scaled"
    assert "gradient of `weight` is 2 times the reference's; `bias` is wrong too" in diagnosis.message
