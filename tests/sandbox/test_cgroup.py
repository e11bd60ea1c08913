"""Which memory had run out when the kernel killed a process of a cgroup: the group's own, or the machine's."""

import pytest

from grader.sandbox._cgroup import Cgroup
from grader.sandbox._values import Limits

LIMITS = Limits(1, 1 << 30, 1, 1, 10, 1, 1)
VERSION_2 = "low 0\nhigh 0\nmax {reached}\noom {reached}\noom_kill {killed}\noom_group_kill 0\n"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("killed", "reached", "short"), [(0, 0, None), (0, 3, None), (1, 3, "group"), (1, 0, "host")])
def test_a_kill_without_reaching_the_limit_is_the_hosts(tmp_path, version, killed, reached, short):
    cgroup = Cgroup({}, LIMITS)
    cgroup._groups = {"memory": tmp_path}
    if version == 2:
        (tmp_path / "memory.events").write_text(VERSION_2.format(killed=killed, reached=reached))
    else:
        (tmp_path / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {killed}\n")
        (tmp_path / "memory.limit_in_bytes").write_text(f"{1 << 30}\n")
        (tmp_path / "memory.max_usage_in_bytes").write_text(f"{1 << 30 if reached else 1 << 28}\n")
    assert cgroup.short_of_memory() == short


def test_without_a_memory_cgroup_nothing_is_known():
    assert Cgroup({}, LIMITS).short_of_memory() is None
