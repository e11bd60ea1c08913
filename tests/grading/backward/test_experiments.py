"""Experiments declare where they are asked and what their finding means."""

import pytest

from grader.grading.backward.experiments import _base, experiments
from grader.verdict.codes import CODES


def codes(phase, mode):
    return tuple(experiment.code for experiment in experiments(phase, mode))


@pytest.mark.parametrize("phase", ["cause", "post-check"])
def test_experiments_run_by_rank(phase):
    ranks = [one.rank for one in experiments(phase, "train")]
    assert ranks == sorted(set(ranks))
    assert set(codes(phase, "eval")) <= set(codes(phase, "train"))


@pytest.mark.parametrize("phase", ["cause", "post-check"])
def test_what_spoils_later_experiments_runs_before_them(phase):
    lasting = [one.lasting for one in experiments(phase, "train")]
    assert lasting == sorted(lasting, reverse=True)


@pytest.mark.parametrize("one", experiments("post-check", "train"), ids=lambda one: one.code)
def test_an_experiment_says_what_it_asks_and_what_to_change(one):
    assert one.code in CODES
    assert one.question.endswith(".")
    assert one.remedy[0].islower()
    assert not one.remedy.endswith(".")


def test_an_experiment_is_declared_beside_its_function(monkeypatch):
    monkeypatch.setattr(_base, "_EXPERIMENTS", dict(_base._EXPERIMENTS))

    @_base.experiment("grad_zero", question="It is not zero.", remedy="write it", rank=15, modes=("train",))
    def not_zero(candidate, cases):
        return None

    order = codes("post-check", "train")
    assert order.index("saved_tensor_mutated") < order.index("grad_zero") < order.index("inconsistent_with_forward")
    assert "grad_zero" not in codes("post-check", "eval")
    with pytest.raises(AssertionError, match="has an experiment already"):
        _base.experiment("grad_zero", question="?", remedy="?", rank=16)(not_zero)
