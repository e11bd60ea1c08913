"""What stays is left out of collections; what comes later is collected as usual."""

import gc

import pytest

from grader.machine.collector import permanent


@pytest.fixture(autouse=True)
def thawed():
    yield
    gc.unfreeze()


def test_nothing_is_collected_meanwhile_and_what_was_made_is_frozen():
    before = gc.get_freeze_count()
    with permanent():
        assert not gc.isenabled()
        stays = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(stays)


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with permanent():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_it_is_on_again_after_an_error():
    with pytest.raises(ImportError), permanent():
        raise ImportError
    assert gc.isenabled()
