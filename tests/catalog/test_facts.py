"""The listing of a problem describes its operands without allocating a large tensor."""

import os
import subprocess
import sys

import pytest

from grader.catalog.facts import facts
from grader.catalog.known_facts import FACTS_FILE
from grader.catalog.own_folders import shipped
from scripts import shipped_facts
from tests import samples


def look(source):
    return facts(samples.problem(source=source))


def operand(found, name):
    return next(one for one in found.operands if one.name == name)


def test_inputs_parameters_and_outputs_are_named():
    found = look(samples.PROBLEM_SOURCE)
    assert (found.forward, found.backward, found.why_not) == (True, True, None)
    assert [(one.kind, one.name, one.shape, one.dtype, one.gradient) for one in found.operands] == [
        ("input", "x", (4, 8), "float32", True),
        ("parameter", "weight", (8,), "float32", True),
        ("output", "output", (4, 8), "float32", True),
    ]


def test_a_problem_larger_than_any_memory_is_listed():
    found = look(samples.PROBLEM_SOURCE.replace("torch.randn(4, 8)", "torch.randn(1 << 40, 8)"))
    assert operand(found, "x").shape == (1 << 40, 8)


@pytest.mark.parametrize(
    ("forward", "name", "reason"),
    [
        ("return x.detach() * self.weight", "x", "no output of the reference depends on it differentiably"),
        ("return x * self.weight, x.argmax(1)", "output[1]", "int64 has no gradients"),
        ("return {'a': x * self.weight, 'b': 3}", "output['b']", "it is not a tensor"),
        ("return x * self.weight, x.detach()", "output[1]", "the reference's output does not require a gradient"),
    ],
)
def test_an_operand_without_gradient_has_a_reason(forward, name, reason):
    found = look(samples.PROBLEM_SOURCE.replace("return x * self.weight", forward))
    assert found.backward
    assert operand(found, name).gradient is False
    assert operand(found, name).why_no_gradient == reason


def test_integer_inputs_and_frozen_parameters():
    source = samples.PROBLEM_SOURCE.replace("return x * self.weight", "return self.weight * x.float()")
    source = source.replace("torch.randn(4, 8)", "torch.arange(8), 2.5").replace("self, x)", "self, x, scale)")
    found = look(source)
    assert operand(found, "x").why_no_gradient == "int64 has no gradients"
    assert operand(found, "scale").why_no_gradient == "it is not a tensor"
    frozen = look(samples.PROBLEM_SOURCE.replace("torch.ones(size)", "torch.ones(size), requires_grad=False"))
    assert operand(frozen, "weight").why_no_gradient == "it is frozen"


def test_without_any_gradient_only_the_forward_is_gradable():
    found = look(samples.PROBLEM_SOURCE.replace("return x * self.weight", "return x.argmax(1)"))
    assert (found.forward, found.backward) == (True, False)
    assert "no output of the reference depends on anything that takes a gradient" in found.why_not


def test_an_input_that_is_written_in_place_keeps_its_gradient():
    found = look(samples.PROBLEM_SOURCE.replace("return x * self.weight", "return x.mul_(2) * self.weight"))
    assert operand(found, "x").gradient


def test_a_model_that_needs_values_is_not_known_before_it_runs():
    found = look(samples.PROBLEM_SOURCE.replace("return x * self.weight", "return x * float(x.sum().item())"))
    assert found.forward
    assert found.why_not.startswith("not known before it runs: ")


def test_a_broken_problem_is_described():
    found = look("raise ValueError('no')")
    assert (found.forward, found.backward, found.variants) == (False, False, ())
    assert "raised ValueError: no" in found.why_not


def test_warnings_of_a_model_are_not_passed_on(recwarn):
    source = samples.PROBLEM_SOURCE.replace("return x", "import warnings; warnings.warn('odd'); return x")
    assert "odd" in source
    assert look(source).backward
    assert not recwarn


def test_facts_about_shipped_problems_are_current():
    """Otherwise run `python -m scripts.shipped_facts`."""
    assert (shipped("problems") / FACTS_FILE).read_text() == shipped_facts.written()


def test_shipped_problems_are_listed_without_torch(tmp_path):
    """Its import takes seconds, in the first command too."""
    listing = "from grader.cli import app; app(['problems'], standalone_mode=False)"
    code = f"{listing}; import sys; print('torch' in sys.modules)"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
