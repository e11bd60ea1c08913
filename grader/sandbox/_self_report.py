"""A program that prints its own confinement as JSON.

It runs in a sandbox, as a command and as a zygote's copy, before any submission does, so its report is trusted. It
imports nothing of the grader, which is not visible inside.
"""

import json
import os
import resource
import sys
from pathlib import Path


def main() -> None:
    """Print the report."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    scratch = os.statvfs(os.environ["TMPDIR"])
    report = {
        "namespaces": {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()},
        "user_id": os.getuid(),
        "seccomp": int(status["Seccomp"]),
        "no_new_privileges": int(status["NoNewPrivs"]),
        "capabilities": max(int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")),
        "file_bytes": resource.getrlimit(resource.RLIMIT_FSIZE)[0],
        "data_bytes": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "process_count": resource.getrlimit(resource.RLIMIT_NPROC)[0],
        "scratch_bytes": scratch.f_blocks * scratch.f_frsize,
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
