"""What is documented is there, and what is there is documented."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import typer

from db.schema import NEWEST
from grader.cli import app
from grader.models import Status

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()

COMMANDS = typer.main.get_command(app).commands
WITH_PARTS = COMMANDS | {
    f"{name} {part}": command
    for name, group in COMMANDS.items()
    for part, command in getattr(group, "commands", {}).items()
}


def test_both_make_commands_are_on_the_first_screen():
    first_screen = "\n".join(README.splitlines()[:24])
    assert "    make demo\n" in first_screen
    assert "    make test\n" in first_screen


@pytest.mark.parametrize("target", sorted({*re.findall(r"^    make ([\w-]+)", README + CONTRIBUTING, re.MULTILINE)}))
def test_each_make_command_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", WITH_PARTS)
def test_each_command_is_documented_and_its_help_has_an_example(name):
    assert f"    grader {name}" in README
    help_text = WITH_PARTS[name].help
    assert f"  grader {name}" in help_text
    assert len(help_text.splitlines()[0]) > 20


@pytest.mark.parametrize("name", WITH_PARTS)
def test_each_option_has_help(name):
    for parameter in WITH_PARTS[name].params:
        assert parameter.help, f"{name} {parameter.name}"


def test_each_command_in_the_readme_exists():
    assert set(re.findall(r"^    grader (\w+)", README, re.MULTILINE)) == set(COMMANDS)


def test_each_option_of_grade_is_documented():
    options = {option for parameter in COMMANDS["grade"].params for option in parameter.opts if option.startswith("--")}
    assert {option for option in options if option not in README} == set()


def test_each_status_is_documented():
    assert {status for status in Status if f"`{status}`" not in README} == set()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w./-]+/[\w.]+\.(?:py|sql)|[\w./-]+/)`", CONTRIBUTING))))
def test_each_path_in_contributing_exists(path):
    assert (ROOT / (path if "NNNN" not in path else Path(path).parent)).exists()


@pytest.mark.slow
def test_the_example_in_the_readme_prints_what_it_says(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    block = re.search(r"\n\n(    from pathlib.*?)\n\n(?=\S)", README, re.DOTALL)[1]
    exec(compile(textwrap.dedent(block), "README.md", "exec"), {})
    promised = [line.partition("  # ")[2] for line in block.splitlines() if "print(" in line]
    assert capsys.readouterr().out.splitlines() == promised


def test_help_is_there_without_waiting_for_torch():
    code = (
        "import sys, grader.cli; assert 'torch' not in sys.modules; sys.argv = ['grader', '--help']; grader.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in COMMANDS)


def test_the_newest_schema_is_the_one_that_tests_know():
    assert (ROOT / "tests" / "db" / f"version_{NEWEST}.sql").exists()
