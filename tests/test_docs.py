"""The documentation and the code describe the same commands, options, codes, fields and files."""

import importlib.util
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import typer

import grader
from grader.cli import app
from grader.verdict.codes import CODES
from grader.verdict.labels import LABELS
from grader.verdict.models import Status, Verdict
from grader.verdict.stages import StageStatus
from scripts import architecture_picture, reference_pages
from tests.test_imports import ORDER, WORKER

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
TUTORIAL = ROOT / "docs" / "tutorial"
ARCHITECTURE = (TUTORIAL.parent / "explanation" / "architecture.md").read_text()
PATHS = r"`([\w./-]+/[\w.]+\.(?:py|sql)|[\w.-]+/[\w./-]*/)`"
REFERENCE = reference_pages.pages()
GENERATED = {f"docs/{path}" for path in REFERENCE}
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if str(path.relative_to(ROOT)) not in GENERATED
}
"""Those that people write."""
TEXTS = {"README.md": README, "CONTRIBUTING.md": CONTRIBUTING, **PAGES}

COMMANDS = dict(typer.main.get_command(app).commands)
WITH_PARTS = COMMANDS | {
    f"{name} {part}": command
    for name, group in COMMANDS.items()
    for part, command in getattr(group, "commands", {}).items()
}


def test_both_make_commands_are_on_the_first_screen():
    first_screen = "\n".join(README.splitlines()[:24])
    assert "    make demo\n" in first_screen
    assert "    make test\n" in first_screen


def test_the_readme_is_short():
    assert len(README.split()) <= 900


def test_the_readme_has_its_parts_in_order():
    parts = [
        "Checks and benchmarks",
        "![A verdict",
        "## Install",
        "## Your own kernel in five lines",
        "## What a verdict looks like",
        "## Grade a KernelBench run",
        "## Train on verdicts",
        "## Compared",
        "## Measured",
        "## Documentation",
    ]
    places = [README.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(("language", "label"), [("cuda", "cuda"), ("python", "triton")])
def test_the_kernels_of_the_readme_are_those_that_init_writes(language, label):
    (kernel,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert len(kernel.splitlines()) == 5
    assert kernel in (ROOT / "starter" / "submissions" / "me" / f"scale_silu__{label}.py").read_text()


def mentioned(pattern):
    """(file, match) of the pattern's group in code blocks and backquotes."""
    lines = rf"^(?: {{4}}| {{8}}){pattern}|`{pattern}`"
    for name, text in TEXTS.items():
        for found in re.finditer(lines, text, re.MULTILINE):
            yield name, found[1] or found[2]


@pytest.mark.parametrize("target", sorted({target for _, target in mentioned(r"make ([\w-]+)[^\n`]*")}))
def test_each_make_command_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", WITH_PARTS)
def test_each_command_is_documented_and_its_help_has_an_example(name):
    assert any(f"    grader {name}" in text for text in TEXTS.values())
    help_text = WITH_PARTS[name].help
    assert f"  grader {name}" in help_text
    assert len(help_text.splitlines()[0]) > 20


@pytest.mark.parametrize("name", WITH_PARTS)
def test_each_option_has_help(name):
    for parameter in WITH_PARTS[name].params:
        assert parameter.help, f"{name} {parameter.name}"


def test_each_option_of_grade_is_documented():
    options = {option for parameter in COMMANDS["grade"].params for option in parameter.opts if option.startswith("--")}
    assert {option for option in options if option not in PAGES["docs/how-to/grade.md"]} == set()


def test_each_status_is_documented():
    assert {status for status in Status if f"`{status}`" not in PAGES["docs/how-to/grade.md"]} == set()


@pytest.mark.parametrize("path", sorted(set(re.findall(PATHS, CONTRIBUTING + ARCHITECTURE))))
def test_each_path_in_contributing_and_architecture_exists(path):
    assert (ROOT / (path if "NNNN" not in path else Path(path).parent)).exists()


@pytest.mark.slow
def test_the_example_in_the_readme_prints_the_shown_output(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    block = re.search(r"\n\n(    from pathlib.*?)\n\n(?=\S)", README, re.DOTALL)[1]
    exec(compile(textwrap.dedent(block), "README.md", "exec"), {})
    promised = [line.partition("  # ")[2] for line in block.splitlines() if "print(" in line]
    assert capsys.readouterr().out.splitlines() == promised


def test_help_does_not_import_torch():
    code = (
        "import sys, grader.cli; assert 'torch' not in sys.modules; sys.argv = ['grader', '--help']; grader.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in COMMANDS)


# --------------------------------------------------------------------------------------------- the architecture


def test_the_picture_shows_the_imports_of_the_code():
    drawn = architecture_picture.PICTURE.read_text()
    assert drawn == architecture_picture.picture(), "run `python -m scripts.architecture_picture`"


def test_every_package_is_explained():
    lazy = {"grader", "grader._version", "grader.__main__"}
    packages = set().union(*ORDER) - lazy | {WORKER}
    assert {name for name in packages if f"\n| `{name}` | " not in ARCHITECTURE} == set()


def test_each_step_of_a_submission_is_a_function_of_its_file():
    steps = re.findall(r"^\|[^|]+\| `(\w+)` \| `([\w/.]+\.py)` \|$", ARCHITECTURE, re.MULTILINE)
    assert len(steps) >= 10
    for name, path in steps:
        assert re.search(rf"^ *(?:def|class) {name}\b", (ROOT / path).read_text(), re.MULTILINE), f"{path}: {name}"


# ------------------------------------------------------------------------------------------------ the reference


def test_the_reference_has_every_command_and_option():
    page = REFERENCE["reference/cli.md"]
    for name, command in reference_pages.commands():
        section = page.partition(f"## grader {name}\n")[2].partition("\n## ")[0]
        assert section, name
        options = [option for parameter in command.params for option in parameter.opts if parameter.name != "help"]
        for option in options:
            assert f"`{option}`" in section or not option.startswith("--"), f"{name} {option}"


@pytest.mark.parametrize("word", sorted({*Status, *StageStatus, *CODES, *LABELS}))
def test_the_reference_has_every_status_code_and_label(word):
    assert re.search(rf"^\| `{word}` \| .*\w.* \|$", REFERENCE["reference/statuses.md"], re.MULTILINE)


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_page_about_rejections_explains_every_code(code):
    section = REFERENCE["how-to/rejected.md"].partition(f"\n### {code}")[2].partition("\n### ")[0]
    assert CODES[code].meaning in section
    assert f"**{CODES[code].remedy}**" in section


def test_the_page_about_rejections_names_submissions_that_exist():
    examples = re.findall(r"Example: `([^`]+)`", REFERENCE["how-to/rejected.md"])
    assert len(examples) > len(CODES) / 2
    assert [name for name in examples if not (ROOT / name).exists()] == []


def test_the_reference_has_every_field_of_a_verdict():
    page = REFERENCE["reference/verdict.md"]
    for name, model in Verdict.model_json_schema()["$defs"].items():
        for field in model.get("properties", {}):
            section = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
            assert f"| `{field}` |" in section, f"{name}.{field}"


def test_the_reference_has_every_column():
    page = REFERENCE["reference/database.md"]
    for table in reference_pages.SQLModel.metadata.tables.values():
        section = page.partition(f"## {table.name}\n")[2].partition("\n## ")[0]
        assert {column.name for column in table.columns if f"| `{column.name}` |" not in section} == set()


@pytest.mark.parametrize("path", REFERENCE)
def test_generated_pages_are_current(path):
    assert (ROOT / "docs" / path).read_text() == REFERENCE[path], "run: python -m scripts.reference_pages"


def test_the_reference_has_every_function():
    page = REFERENCE["reference/python.md"]
    for name in ("grade", "Grader", "GraderPool", "Client", "AsyncClient", "Work", "reward", "feedback"):
        assert name in grader.__all__
        assert f"\n## {name}\n" in page
    for name in ("grade", "grade_many", "agrade_many", "close"):
        assert f"\n### Grader.{name}\n" in page
        assert f"\n### GraderPool.{name}\n" in page
        assert f"\n### Client.{name}\n" in page


# ---------------------------------------------------------------------------------------------------- the pages


@pytest.mark.parametrize("line", sorted({line for _, line in mentioned(r"((?:grader-env/bin/)?grader [^\n`]*)")}))
def test_each_command_in_the_pages_parses(line):
    command, name, words = typer.main.get_command(app), "grader", shlex.split(re.split(r" [|>] ", line)[0])[1:]
    if words in (["--install-completion"], ["--show-completion"]):
        assert words[0] in [option for parameter in command.params for option in parameter.opts]
        return  # parsing them is running them
    while words[1:] and words[0].startswith("--log-"):
        assert words[0] in [option for parameter in command.params for option in parameter.opts]
        words = words[2:]
    while words and words[0] in getattr(command, "commands", {}):
        name = words.pop(0)
        command = command.commands[name]
    command.make_context(name, words)  # parses and checks everything, runs nothing
    assert name != "grader" or words == ["--version"]


def test_each_link_between_pages_has_a_target():
    for name, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text):
            assert ((ROOT / name).parent / target).exists(), f"{name}: {target}"


@pytest.mark.skipif(not importlib.util.find_spec("material"), reason="needs the extra `docs`: `make docs` installs it")
def test_the_site_builds_and_loads_no_external_resources(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ScaleSilu" in (tmp_path / "tutorial" / "first-verdict.html").read_text(), "the files are shown"
    for page in tmp_path.rglob("*.html"):
        assert "--8" not in page.read_text()
        foreign = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^>]+>", page.read_text())
        assert [tag for tag in foreign if "canonical" not in tag] == [], page.name
    assert {f"{Path(path).with_suffix('.html')}" for path in REFERENCE if path.endswith(".md")} <= {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")
    }
