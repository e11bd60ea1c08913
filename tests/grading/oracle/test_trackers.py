"""How often the reference runs on perturbed values."""

import pytest

from grader.grading.oracle import trackers
from grader.grading.oracle.evaluation import MODEL


@pytest.mark.parametrize(
    ("eager", "later", "runs"),
    [(0.01, 0.01, 3), (1.0, 0.01, 3), (1.0, 1.0, 1), (None, 1.0, 3)],
    ids=["fast", "slow only at first", "slow", "not measured"],
)
def test_a_slow_reference_has_one_perturbed_run(monkeypatch, eager, later, runs):
    now = 0.0

    def again(count, ulps):
        nonlocal now
        for number in range(count):
            now += later
            yield number

    monkeypatch.setattr(trackers.time, "monotonic", lambda: now)
    seconds = None if eager is None else {MODEL: eager}
    assert len(list(trackers._others(again, 3, seconds))) == runs
    assert seconds is None or seconds[MODEL] == min(eager, later)
