"""Experiments declare where they are asked and what their finding means."""

import pytest

from grader.grading.backward.experiments import _base, experiments
from grader.verdict.codes import CODES


def codes(phase, mode):
    return tuple(experiment.code for experiment in experiments(phase, mode))


@pytest.mark.parametrize("phase", ["cause", "post-check"])
def test_the_modes_share_experiments(phase):
    assert set(codes(phase, "eval")) <= set(codes(phase, "train"))


@pytest.mark.parametrize("one", experiments("post-check", "train"), ids=lambda one: one.code)
def test_an_experiment_says_what_it_asks_and_what_to_change(one):
    assert one.code in CODES
    assert one.question.endswith(".")
    assert one.remedy[0].islower()
    assert not one.remedy.endswith(".")


@pytest.mark.parametrize(
    ("rank", "lasting", "before", "after"),
    [
        (15, True, "saved_tensor_mutated", "inconsistent_with_forward"),
        (65, False, "stale_saved_state", "ignores_needs_input_grad"),
        (1, False, "accumulation_broken", "ignores_grad_output"),
    ],
)
def test_an_experiment_is_declared_beside_its_function(monkeypatch, rank, lasting, before, after):
    """Those that spoil later experiments run first, whatever the ranks."""
    monkeypatch.setattr(_base, "_EXPERIMENTS", dict(_base._EXPERIMENTS))
    declare = _base.experiment(
        "grad_zero", question="It is not zero.", remedy="write it", rank=rank, train_only=True, lasting=lasting
    )
    declare(lambda candidate, cases: None)
    order = codes("post-check", "train")
    assert order[order.index("grad_zero") - 1] == before
    assert order[order.index("grad_zero") + 1] == after
    assert "grad_zero" not in codes("post-check", "eval")
    with pytest.raises(AssertionError, match="has an experiment already"):
        _base.experiment("grad_zero", question="?", remedy="?", rank=16)(lambda candidate, cases: None)
