"""How often the reference runs on perturbed values."""

import pytest

from grader.grading.oracle import trackers
from grader.grading.oracle.evaluation import MODEL


@pytest.mark.parametrize(
    ("eager", "later", "runs"),
    [(0.01, 0.01, 3), (1.0, 0.01, 3), (1.0, 1.0, 1)],
    ids=["fast", "slow only at first", "slow"],
)
def test_a_slow_reference_has_one_perturbed_run(eager, later, runs):
    now = 0.0

    def again(turns, ulps):
        nonlocal now
        for number in turns:
            now += later
            yield number

    pace = trackers.Pace(0.03, lambda: now, {MODEL: eager})
    assert len(list(trackers._others(again, 3, pace))) == runs
    assert pace.seconds[MODEL] == min(eager, later)
