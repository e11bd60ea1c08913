"""A problem is imported under a private name, and a message of one line names what it lacks."""

import sys

import pytest
import torch

from grader.catalog.problem_module import load_problem
from grader.catalog.problems import find_problems
from grader.errors import ProblemError
from tests import samples

KERNELBENCH = samples.PROBLEM_SOURCE

VARIANTS = """
def get_variants():
    return {
        "small": (lambda: [2], lambda: [torch.randn(1, 2)]),
        "odd": (get_init_inputs, lambda: [torch.randn(3, 8)]),
    }
"""


def load(source):
    return load_problem(samples.problem(source=source))


@pytest.mark.parametrize("problem", find_problems().problems.values(), ids=lambda problem: problem.id)
def test_the_shipped_problems_run_in_their_small_variant(problem):
    module = load_problem(problem)
    assert {"small", "odd", "batch1", "full"} <= set(module.variants)
    small = module.variants["small"]
    inputs = small.make_inputs()
    assert len(inputs) == len(module.forward_arguments)
    module.model_class(*small.make_init_inputs())(*inputs)


def test_a_kernelbench_file_has_one_variant():
    module = load(KERNELBENCH)
    assert list(module.variants) == ["full"]
    assert module.forward_arguments == ("x",)
    full = module.variants["full"]
    model = module.model_class(*full.make_init_inputs())
    assert model(*full.make_inputs()).shape == (4, 8)


def test_variants_keep_their_order_and_full_comes_last():
    module = load(KERNELBENCH + VARIANTS)
    assert list(module.variants) == ["small", "odd", "full"]
    assert module.variants["small"].make_init_inputs() == [2]
    assert module.variants["odd"].make_inputs()[0].shape == (3, 8)


def test_a_file_may_place_full_itself():
    module = load(KERNELBENCH + "def get_variants(): return {'full': (lambda: [1], lambda: [torch.ones(1)])}")
    assert module.variants["full"].make_init_inputs() == [1]


def test_a_device_without_memory_for_inputs_is_not_the_problems_fault():
    source = KERNELBENCH + "\ndef get_inputs():\n    raise torch.OutOfMemoryError('1 GiB')\n"
    with pytest.raises(torch.OutOfMemoryError):
        load(source).variants["full"].make_inputs()


def test_each_call_makes_new_inputs():
    full = load(KERNELBENCH).variants["full"]
    assert not torch.equal(full.make_inputs()[0], full.make_inputs()[0])


def test_without_get_init_inputs_the_constructor_has_no_arguments():
    module = load(KERNELBENCH.replace("def get_init_inputs", "def unused"))
    assert list(module.variants["full"].make_init_inputs()) == []


def test_names_of_inputs_fall_back_to_their_position():
    module = load(KERNELBENCH.replace("def forward(self, x):", "def forward(self, x, *rest, scale=1):"))
    assert module.forward_arguments == ("x",)
    assert [module.argument_name(index) for index in range(3)] == ["x", "input[1]", "input[2]"]


def test_code_for_the_command_line_does_not_run():
    load(KERNELBENCH + "\nif __name__ == '__main__': raise SystemExit")
    assert not hasattr(sys.modules["__main__"], "get_init_inputs")


def test_two_sources_of_one_name_are_kept_apart():
    first, second = load(KERNELBENCH), load(KERNELBENCH + "\n# other")
    assert first.model_class is not second.model_class
    assert first.model_class.__module__ != second.model_class.__module__


def test_dataclasses_find_their_module():
    load(
        "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\n"
        + KERNELBENCH
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", r"there is no `class Model\(nn.Module\)`; add"),
        ("class Model: ...", r"there is no `class Model\(nn.Module\)`"),
        (KERNELBENCH.replace("get_inputs", "unused"), r"there is no `get_inputs\(\)`; add one"),
        (KERNELBENCH.replace("def get_inputs():", "get_inputs = 3\ndef unused():"), r"there is no `get_inputs\(\)`"),
        (
            "from no_such_package.models import Large",
            "needs the package `no_such_package`, which .*pip install no_such",
        ),
        ("import torch.no_such_part", "raised ModuleNotFoundError: No module named .*; make the file importable"),
        ("raise SystemExit(3)", "raised SystemExit: 3; make"),
        ("def (", "raised SyntaxError"),
        ("raise ValueError('one\\ntwo')", "raised ValueError: one; make"),
        (KERNELBENCH + "def get_variants(): return [1]", r"get_variants\(\) returned a list; return a dict"),
        (KERNELBENCH + "def get_variants(): return {1: 2}", r"get_variants\(\) returned a dict; return a dict of name"),
        (
            KERNELBENCH + "def get_variants(): return {'rows': 2}",
            "the grader has a variant 'rows' of its own; give",
        ),
        (KERNELBENCH + "def get_variants(): return {'a': 2}", "variant 'a' is not a pair of callables; write"),
        (KERNELBENCH + "def get_variants(): return {'a': ([], [])}", "variant 'a' is not a pair of callables"),
        (
            KERNELBENCH + "def get_variants(): 1 / 0",
            r"get_variants\(\) raised ZeroDivisionError: division by zero; return callables",
        ),
    ],
)
def test_a_message_of_one_line_names_what_is_missing(source, message):
    with pytest.raises(ProblemError, match=message) as caught:
        load(source)
    assert str(caught.value).startswith("/problems/scale.py: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("1 / 0", r"get_inputs\(\) raised ZeroDivisionError: division by zero"),
        ("torch.ones(3)", r"get_inputs\(\) returned a Tensor; return a list"),
        (
            "[[torch.ones(3)]]",
            r"get_inputs\(\): a Tensor cannot be sent .*dense tensors, each as an argument",
        ),
        ("[torch.eye(3).to_sparse()]", r"get_inputs\(\): a Tensor cannot be sent .*dense tensors"),
        ("[object()]", r"get_inputs\(\): a object cannot be sent"),
    ],
)
def test_a_message_of_one_line_names_inputs_that_cannot_be_sent(returned, message):
    module = load(KERNELBENCH + f"def get_inputs(): return {returned}")
    with pytest.raises(ProblemError, match=message) as caught:
        module.variants["full"].make_inputs()
    assert str(caught.value).startswith("/problems/scale.py: ")
    assert "\n" not in str(caught.value)


def test_a_failed_import_leaves_no_module_behind():
    before = set(sys.modules)
    with pytest.raises(ProblemError):
        load("raise ValueError")
    assert not [name for name in set(sys.modules) - before if name.startswith("_grader_problem_")]
