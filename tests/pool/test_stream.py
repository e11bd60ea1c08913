"""How a batch goes through a pool."""

import signal
import threading
from concurrent.futures import Future

import pytest

from grader.catalog.requests import make_request
from grader.options import GraderOptions
from grader.pool.stream import Stream
from grader.verdict.models import Device
from tests import samples


def test_a_signal_that_does_not_wake_the_waiting_thread_is_seen():
    request = make_request(
        samples.problem(), samples.submission(), GraderOptions(device="cpu"), default_device=Device.CPU
    )
    future = Future()

    def interrupt():
        # As a signal that comes just before the wait begins: Python notes it, and the wait goes on.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    late = threading.Timer(10, future.cancel)
    threading.Timer(0.5, interrupt).start()
    late.start()
    with pytest.raises(KeyboardInterrupt):
        list(Stream([request], lambda _: future, 1).results())
    assert not late.finished.is_set()  # that would end the wait too
    late.cancel()
