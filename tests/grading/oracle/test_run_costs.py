"""How often the reference runs on perturbed values."""

import pytest

from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.run_costs import Pace, paced_runs


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

    pace = Pace(0.03, lambda: now, {MODEL: eager})
    assert len(list(paced_runs(again, 3, pace))) == runs
    assert pace.seconds[MODEL] == min(eager, later)
