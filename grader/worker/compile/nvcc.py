"""Runs nvcc with its two halves, host code and device code, in parallel.

    python nvcc.py /usr/local/cuda/bin/nvcc ARGUMENTS

In sequence, cudafe++ takes five seconds and then cicc and ptxas two or more. The second half waits for the first only
because of the module id, which names symbols internal to the file; here both halves get the same one. The commands are
nvcc's own, as `--dryrun` lists them; if that list has an unknown form, nvcc runs unchanged.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)")
_MAKES_ID = re.compile(r'--gen_module_id_file (--module_id_file_name "([^"]+)")')
_TEMPORARY = re.compile(r'"([^"]*tmpxft_[^"]*)"')


@dataclass(frozen=True)
class NvccPlan:
    """Shell commands that compile one source for one architecture."""

    environment: dict[str, str]
    host: Sequence[str]
    """Preprocess, and separate host code from device code."""
    device: Sequence[str]
    """Preprocess, translate, assemble, and embed as an array of bytes."""
    last: str
    """Compile the results of both."""
    source: Path
    module_id: Path


def main() -> int:
    """Compile, and return the exit status."""
    nvcc, *arguments = sys.argv[1:]
    plan = plan_of(nvcc, arguments)
    if plan is None:
        return subprocess.run([nvcc, *arguments], check=False).returncode
    plan.module_id.write_text(unique_id(plan.source, arguments))
    try:
        with ThreadPoolExecutor(2) as pool:
            succeeded = list(pool.map(lambda half: succeed(half, plan.environment), (plan.host, plan.device)))
        return 0 if all(succeeded) and succeed([plan.last], plan.environment) else 1
    finally:
        for name in {name for line in (*plan.host, *plan.device) for name in _TEMPORARY.findall(line)}:
            with suppress(OSError):
                Path(name).unlink()


def plan_of(nvcc: str, arguments: Sequence[str]) -> NvccPlan | None:
    """Return the commands of both halves; None if they cannot be separated."""
    kept = list(arguments)
    if "-MD" in kept:  # with -MF FILE: dependencies for a second build, which never happens
        at = kept.index("-MD")
        del kept[at : at + 3]
    dry = subprocess.run([nvcc, "--dryrun", *kept], capture_output=True, text=True, check=False)
    lines = [line.removeprefix("#$ ") for line in dry.stderr.splitlines() if line.startswith("#$ ")]
    assigned = [match for line in lines if (match := _ASSIGNMENT.fullmatch(line))]
    commands = [line for line in lines if not _ASSIGNMENT.fullmatch(line) and not line.startswith("rm ")]
    dividing = [line for line in commands if line.startswith("cudafe++ ")]
    ids = [_MAKES_ID.search(line) for line in dividing]
    if dry.returncode or "-c" not in kept or len(ids) != 1 or ids[0] is None:
        return None
    preparing = [line for line in commands if shlex.split(line)[-2:] == ["-o", shlex.split(dividing[0])[-1]]]
    others = [line for line in commands if line not in (*preparing, *dividing)]
    if len(preparing) != 1 or sum("cicc" in line.split(" ", 1)[0] for line in others) != 1:
        return None
    return NvccPlan(
        environment={match[1]: match[2].strip() for match in assigned},
        host=[preparing[0], dividing[0].replace(ids[0][0], ids[0][1])],
        device=others[:-1],
        last=others[-1],
        source=Path(shlex.split(preparing[0])[-3]),
        module_id=Path(ids[0][2]),
    )


def unique_id(source: Path, arguments: Sequence[str]) -> str:
    """Return a module id in nvcc's form, unique to the source and the arguments."""
    digest = hashlib.sha256("\0".join((str(source.absolute()), *arguments)).encode() + source.read_bytes()).hexdigest()
    name = re.sub(r"\W", "_", source.name)
    return f"_{digest[:8]}_{len(name)}_{name}_{digest[8:16]}"


def succeed(lines: Sequence[str], environment: dict[str, str]) -> bool:
    """Run the commands in sequence until one fails; return whether all succeeded."""
    variables = os.environ | environment
    return all(subprocess.run(["/bin/sh", "-c", line], env=variables, check=False).returncode == 0 for line in lines)


if __name__ == "__main__":
    sys.exit(main())
