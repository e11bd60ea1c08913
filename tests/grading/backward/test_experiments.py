"""Experiments declare where they are asked and what their finding means."""

import pytest

from grader.grading.backward.experiments import _registry, experiments
from grader.verdict.codes import CODES

CAUSES = (
    "saved_tensor_mutated",
    "accumulation_broken",
    "ignores_grad_output",
    "assumes_contiguous_grad_output",
    "nondeterministic_grad",
)
IN_EVAL = (
    "saved_tensor_mutated",
    "inconsistent_with_forward",
    "accumulation_broken",
    "ignores_grad_output",
    "assumes_contiguous_grad_output",
    "stale_saved_state",
    "ignores_needs_input_grad",
    "buffers_not_updated",
    "undefined_grad_output",
)
LASTING = {"saved_tensor_mutated", "inconsistent_with_forward", "accumulation_broken"}


def codes(phase, mode):
    return tuple(experiment.code for experiment in experiments(phase, mode))


def test_order_of_the_experiments():
    assert codes("cause", "train") == CAUSES
    assert codes("post-check", "eval") == IN_EVAL
    in_train = codes("post-check", "train")
    assert in_train == (*IN_EVAL, "wrong_stream", "nondeterministic_grad", "double_backward_unsupported")
    assert {one.code for one in experiments("post-check", "train") if one.lasting} == LASTING


@pytest.mark.parametrize("one", experiments("post-check", "train"), ids=lambda one: one.code)
def test_an_experiment_says_what_it_asks_and_what_to_change(one):
    assert one.code in CODES
    assert one.question.endswith(".")
    assert one.remedy[0].islower()
    assert not one.remedy.endswith(".")


def test_an_experiment_is_declared_beside_its_function(monkeypatch):
    monkeypatch.setattr(_registry, "_EXPERIMENTS", dict(_registry._EXPERIMENTS))

    @_registry.experiment("grad_zero", question="It is not zero.", remedy="write it", rank=15, modes=("train",))
    def not_zero(candidate, cases):
        return None

    assert codes("post-check", "train")[:3] == ("saved_tensor_mutated", "grad_zero", "inconsistent_with_forward")
    assert "grad_zero" not in codes("post-check", "eval")
    with pytest.raises(AssertionError, match="has an experiment already"):
        _registry.experiment("grad_zero", question="?", remedy="?", rank=16)(not_zero)
