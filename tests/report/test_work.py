"""What is said about a grader at work."""

import pytest

from db.presence import RunProgress, WorkerState
from grader.report.work import about, time_left


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (RunProgress(graded=0, failed=0), ""),
        (RunProgress(graded=3, failed=1, rate=0.05, left=12), "3.0 a minute, 4 min left, 1 failed"),
        (RunProgress(graded=3, failed=0, rate=2.5, left=None), "2.5 a second"),
        (
            RunProgress(
                graded=3,
                failed=0,
                workers=(
                    WorkerState(name="GPU 0", state="ready", graded=3),
                    WorkerState(name="GPU 1", state="set aside", graded=0, reason="no context"),
                ),
            ),
            "2 GPUs (1 set aside)",
        ),
    ],
)
def test_a_line_says_workers_rate_time_left_and_failures(work, text):
    assert about(work) == text


@pytest.mark.parametrize(
    ("left", "text"), [(10, "10 s left"), (600, "10 min left"), (10_000, "3 h left"), (10**6, "12 days left")]
)
def test_the_time_left_has_one_unit(left, text):
    assert time_left(RunProgress(graded=1, failed=0, rate=1.0, left=left)) == text
