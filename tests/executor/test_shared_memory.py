"""The room to grow that shared memory gets on a GPU with ample memory."""

import pytest

from grader.executor.launcher import Role
from grader.executor.shared_memory import LEAST_BYTES, MOST_SPARE_BYTES, roomy
from grader.grading.resources import Resources
from grader.machine.backends.cuda import BACKEND
from grader.verdict.models import Device

LARGE = 256 << 20


@pytest.mark.gpu
@pytest.mark.parametrize(("role", "ample"), [(Role.RUN, True), (Role.RUN, False), (Role.REFERENCE, True)])
def test_a_candidate_shares_memory_with_room_to_grow_where_there_is_ample(monkeypatch, role, ample):
    monkeypatch.setattr(BACKEND, "ample_memory", lambda: ample)
    with Resources() as resources, resources.launcher.take(role, Device.CUDA) as worker:
        made = [worker.region("inbox", "cuda", nbytes).nbytes for nbytes in (LEAST_BYTES, LARGE)]
    spare = (2 * LEAST_BYTES, MOST_SPARE_BYTES) if ample and role is Role.RUN else (0, 0)
    assert made == [LEAST_BYTES + spare[0], LARGE + spare[1]]


@pytest.mark.parametrize(
    ("kind", "spare", "nbytes", "region"),
    [
        ("cuda", True, 1, 1 + 1 + LEAST_BYTES),
        ("cuda", True, LEAST_BYTES, 3 * LEAST_BYTES),
        ("cuda", True, LARGE, LARGE + MOST_SPARE_BYTES),
        ("cuda", False, LARGE, LARGE),
        ("cuda", False, 1, LEAST_BYTES),
        ("host", True, LARGE, LARGE),
    ],
)
def test_the_room_to_grow_is_that_of_a_small_region(kind, spare, nbytes, region):
    assert roomy(kind, nbytes, spare=spare) == region
