"""nvcc with its two halves side by side: what the host compiles, and what the device runs.

    python nvcc.py /usr/local/cuda/bin/nvcc ARGUMENTS

One after another they take five seconds, cudafe++, and then two or more, cicc and ptxas. The second waits for the first
because of the module id alone, which names what is internal to the file: here both are given one. The commands are
nvcc's own, as `--dryrun` lists them; where that list has another form, nvcc is run as it is.
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
class Plan:
    """Lines for a shell, of one source for one architecture."""

    environment: dict[str, str]
    host: Sequence[str]
    """Preprocess, and take apart."""
    device: Sequence[str]
    """Preprocess, translate, assemble, make an array of bytes of it."""
    last: str
    """Compile what comes of both."""
    source: Path
    module_id: Path


def main() -> int:
    nvcc, *arguments = sys.argv[1:]
    plan = plan_of(nvcc, arguments)
    if plan is None:
        return subprocess.run([nvcc, *arguments], check=False).returncode
    plan.module_id.write_text(unique_id(plan.source, arguments))
    try:
        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(lambda half: carried_out(half, plan.environment), (plan.host, plan.device)))
        return 0 if all(both) and carried_out([plan.last], plan.environment) else 1
    finally:
        for name in {name for line in (*plan.host, *plan.device) for name in _TEMPORARY.findall(line)}:
            with suppress(OSError):
                Path(name).unlink()


def plan_of(nvcc: str, arguments: Sequence[str]) -> Plan | None:
    """None where the halves cannot be told apart."""
    kept = list(arguments)
    if "-MD" in kept:  # with -MF FILE; nobody builds twice in one folder
        at = kept.index("-MD")
        del kept[at : at + 3]
    dry = subprocess.run([nvcc, "--dryrun", *kept], capture_output=True, text=True, check=False)
    lines = [line.removeprefix("#$ ") for line in dry.stderr.splitlines() if line.startswith("#$ ")]
    assigned = [match for line in lines if (match := _ASSIGNMENT.fullmatch(line))]
    commands = [line for line in lines if not _ASSIGNMENT.fullmatch(line) and not line.startswith("rm ")]
    dividing = [line for line in commands if line.startswith("cudafe++ ")]
    made = [_MAKES_ID.search(line) for line in dividing]
    if dry.returncode or "-c" not in kept or len(made) != 1 or made[0] is None:
        return None
    preparing = [line for line in commands if shlex.split(line)[-2:] == ["-o", shlex.split(dividing[0])[-1]]]
    others = [line for line in commands if line not in (*preparing, *dividing)]
    if len(preparing) != 1 or sum("cicc" in line.split(" ", 1)[0] for line in others) != 1:
        return None
    return Plan(
        environment={match[1]: match[2].strip() for match in assigned},
        host=[preparing[0], dividing[0].replace(made[0][0], made[0][1])],
        device=others[:-1],
        last=others[-1],
        source=Path(shlex.split(preparing[0])[-3]),
        module_id=Path(made[0][2]),
    )


def unique_id(source: Path, arguments: Sequence[str]) -> str:
    """In nvcc's form; another for another source, or for other arguments."""
    digest = hashlib.sha256("\0".join((str(source.absolute()), *arguments)).encode() + source.read_bytes()).hexdigest()
    name = re.sub(r"\W", "_", source.name)
    return f"_{digest[:8]}_{len(name)}_{name}_{digest[8:16]}"


def carried_out(lines: Sequence[str], environment: dict[str, str]) -> bool:
    """One after another, while all goes well."""
    variables = os.environ | environment
    return all(subprocess.run(["/bin/sh", "-c", line], env=variables, check=False).returncode == 0 for line in lines)


if __name__ == "__main__":
    sys.exit(main())
