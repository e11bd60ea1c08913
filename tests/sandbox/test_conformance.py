"""Runs every conformance case in each sandbox, as root and as an ordinary user."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import grader
from grader.errors import SandboxUnavailable
from grader.sandbox import choose
from tests.sandbox import conformance
from tests.sandbox.conformance import CASES, NEEDED_LAYERS

# A grader is killed at random moments of its start, and beside other tests one of them takes much longer.
pytestmark = pytest.mark.alone

NOBODY = 65534
SYSTEM_PYTHON = Path("/usr/bin/python3")

ARRANGEMENTS = [(name, user) for name in ("bubblewrap", "copied", "weak") for user in ("root", "ordinary")]
CASES_OF = [
    (name, user, case) for name, user in ARRANGEMENTS for case in CASES if case not in conformance.NOT_OF.get(name, ())
]


@pytest.fixture(scope="module")
def readable_copy() -> Iterator[Path]:
    """A copy of the code that every user can read: a checkout may lie in a closed folder."""
    with tempfile.TemporaryDirectory() as name:
        package = Path(name, "grader")
        source = Path(grader.__file__).parent
        shutil.copytree(source / "sandbox", package / "sandbox", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(source / "errors.py", package)
        (package / "__init__.py").touch()
        shutil.copy(conformance.__file__, name)
        shutil.copy(Path(conformance.__file__).with_name("copied.py"), name)
        for path in (Path(name), *Path(name).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield Path(name)


class Results(NamedTuple):
    """The results of all cases in one arrangement."""

    layers: set[str]
    failures: dict[str, str]


@pytest.fixture(scope="module")
def results(readable_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Results]:
    """Runs the cases of all arrangements, side by side because they mostly wait for limits.

    The first process of a test run that asks does, and the others read.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    @cache
    def everything() -> dict[str, Any]:
        with (shared / "conformance.json").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            if not text:
                text = json.dumps(run_side_by_side(readable_copy))
                file.write(text)
        return dict(json.loads(text))

    def results_of(sandbox: str, user: str) -> Results:
        found = everything()[f"{sandbox} {user}"]
        if "refused" in found:
            pytest.skip(f"{sandbox} as {user}: {found['refused']}")
        return Results(**found)

    return results_of


def run_side_by_side(code: Path) -> dict[str, Any]:
    """Results by arrangement. Those of root run in turn: each start of a sandbox by root ends what others left."""
    lanes = [
        [("copied", "root"), ("weak", "root")],
        *([(name, "ordinary")] for name in ("bubblewrap", "copied", "weak")),
    ]
    with ThreadPoolExecutor() as threads:
        done = threads.map(lambda lane: {" ".join(one): json.loads(run_all(*one, code)) for one in lane}, lanes)
    return {name: found for results in done for name, found in results.items()}


def run_all(sandbox: str, user: str, code: Path) -> str:
    """Run all cases, by an interpreter that every user can reach. Returns JSON."""
    prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if user == "ordinary" else []
    ended = subprocess.run(
        [*prefix, str(SYSTEM_PYTHON), "-B", "-P", str(code / "conformance.py"), sandbox],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(code)},
    )
    if ended.returncode:
        return json.dumps({"refused": ended.stderr.strip().splitlines()[-1]})
    return ended.stdout


@pytest.mark.parametrize(("sandbox", "user", "case"), CASES_OF)
def test_sandbox_holds(sandbox: str, user: str, case: str, results: Callable[[str, str], Results]) -> None:
    am_root = os.geteuid() == 0
    if user == "root" and not am_root:
        pytest.skip("needs root")
    if sandbox == "bubblewrap" and (user == "root" or not am_root):
        outcome = _in_this_process(case)
    else:
        _require_system_python()
        outcome = results(sandbox, user)
    needed = NEEDED_LAYERS.get(case)
    if needed is None or needed & set(outcome.layers):
        assert case not in outcome.failures, outcome.failures[case]
    elif conformance.ENDED_BY_OTHERS.get(case) not in outcome.layers:
        assert case in outcome.failures, f"passes, although none of {needed} is reported as active"


def _in_this_process(case: str) -> Results:
    try:
        sandbox = choose("bubblewrap")
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    try:
        CASES[case](sandbox)
    except AssertionError:
        return Results(set(sandbox.layers), {case: traceback.format_exc()})
    return Results(set(sandbox.layers), {})


@cache
def _require_system_python() -> None:
    wanted = f"import sys; sys.exit(sys.version_info < {sys.version_info[:2]!r})"
    if not SYSTEM_PYTHON.exists() or subprocess.run([SYSTEM_PYTHON, "-c", wanted], check=False).returncode:
        pytest.skip(f"needs an interpreter that every user can reach: {SYSTEM_PYTHON}, as new as this one")
