"""The pace of a batch: what is graded, what failed, and who is at work."""

from grader.batch.reached import Reached
from grader.pool import PlaceState
from grader.verdict.models import Status


def test_a_pace_counts_verdicts_and_what_failed():
    pace = Reached()
    pace.places = lambda: (PlaceState(name="GPU 0", state="ready", graded=2, under_way="ann/scale"),)
    for status in (Status.CORRECT, Status.WRONG_OUTPUT, Status.GRADER_ERROR, None):
        pace.note(status)
    work = pace.work(5)
    assert (work.graded, work.failed, work.left) == (3, 2, 5)
    assert work.rate > 0
    assert work.workers[0].under_way == "ann/scale"
