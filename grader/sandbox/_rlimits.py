"""Limits of single processes, by name, as the inner launcher sets them."""

from grader.sandbox._values import Limits


def rlimits(limits: Limits, *, memory: bool, processes: bool) -> dict[str, int]:
    """`memory` stands in for a cgroup. It is RLIMIT_DATA: RLIMIT_AS would refuse CUDA its reserved address ranges.

    `processes` counts those of one uid, in one user namespace: never set it for a uid that others use too.
    """
    chosen = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": limits.file_bytes}
    if memory:
        chosen["RLIMIT_DATA"] = limits.memory_bytes
    if processes:
        chosen["RLIMIT_NPROC"] = limits.process_count
    return chosen
