"""The wheel contains everything that the grader needs when it runs from another folder."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def grader(installed, *arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "grader", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_shipped_problems_come_along(installed, tmp_path):
    done = grader(installed, "problems", "--json", cwd=tmp_path)
    found = {one["id"]: one["path"] for one in map(json.loads, done.stdout.splitlines())}
    assert set(found) == {path.stem for path in (ROOT / "problems").glob("*.py")}
    assert all(path.startswith(str(installed)) for path in found.values())


@pytest.mark.parametrize("folder", ["reference_solutions", "submissions", "starter"])
def test_the_shipped_solutions_come_along(installed, folder):
    shipped = {path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*.py")}
    along = installed / "grader" / "_shipped" / folder
    assert shipped == {path.relative_to(along) for path in along.rglob("*.py")}


def test_the_database_finds_its_migrations(installed, tmp_path):
    code = "from db import Store; Store.open('grader.db').close()"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "grader.db").exists()


@pytest.mark.parametrize("package", ["grader", "db"])
def test_type_checkers_read_the_annotations(installed, package):
    assert (installed / package / "py.typed").exists()


def test_what_is_no_part_of_the_package_stays_out(installed):
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} == {"grader", "db"}
    assert list(installed.glob("*.dist-info/licenses/LICENSE"))
