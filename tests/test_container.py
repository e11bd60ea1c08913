"""The Dockerfile, without an engine: its form, and that what it copies and installs is what a wheel needs."""

import importlib.machinery
import importlib.util
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INSTRUCTIONS = ("FROM", "RUN", "COPY", "ENV", "WORKDIR", "ENTRYPOINT", "CMD")


@pytest.fixture(scope="module")
def steps():
    loader = importlib.machinery.SourceFileLoader("dockerfile_steps", str(ROOT / "scripts" / "dockerfile_steps"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module.instructions()


def test_instructions_are_known_and_the_base_has_a_version(steps):
    assert {name for name, _ in steps} <= set(INSTRUCTIONS)
    assert steps[0][0] == "FROM"
    assert re.fullmatch(r"nvidia/cuda:\d+\.\d+\.\d+-devel-ubuntu\d\d\.04", steps[0][1])


def test_run_steps_are_shell_and_leave_no_package_lists(steps):
    for name, arguments in steps:
        if name == "RUN":
            assert subprocess.run(["bash", "-n", "-c", arguments], check=False).returncode == 0
            if "apt-get" in arguments:
                assert "--yes --no-install-recommends" in arguments
                assert arguments.endswith("rm -rf /var/lib/apt/lists/*")
            assert "pip install" not in arguments or "--no-cache-dir" in arguments


def test_what_the_build_needs_is_copied(steps):
    copied = {source for name, arguments in steps if name == "COPY" for source in shlex.split(arguments)[:-1]}
    assert all((ROOT / source).exists() for source in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert copied >= {*wheel["packages"], *wheel["force-include"], "LICENSE", "README.md", "pyproject.toml"}
