"""The limit that ends a step: what it interrupts, and what it leaves."""

import contextlib
import signal
import threading
import time

import pytest

from grader.worker.timing.time_limit import TookTooLong, at_most


def test_work_within_the_limit_is_untouched():
    with at_most(60.0):
        pass
    with at_most(None):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_wait_is_ended_and_no_alarm_remains(seconds):
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TookTooLong, match="longer than 0 s"), at_most(seconds):
        threading.Event().wait(60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_it_passes_what_catches_exceptions():
    """As a search for kernels does, which tries the next candidate."""

    def search():
        while True:
            with contextlib.suppress(Exception):
                time.sleep(60)

    with pytest.raises(TookTooLong), at_most(0.05):
        search()


@pytest.mark.filterwarnings("ignore:Exception ignored in")
def test_it_comes_again_where_python_dropped_it(monkeypatch):
    monkeypatch.setattr("grader.worker.timing.time_limit.AGAIN_SECONDS", 0.05)

    class Finalizer:
        def __del__(self):
            time.sleep(0.2)  # the first one is raised here, and printed

    def finalize_and_wait():
        Finalizer()
        time.sleep(60)

    with pytest.raises(TookTooLong), at_most(0.05):
        finalize_and_wait()
