"""Batches from other programs: checkouts and runs of KernelBench, JSONL, and remembered problem folders."""

import json
import os
import subprocess
import sys
import threading

import pytest

from grader.catalog.requests import MAX_LINE_BYTES
from grader.grading.problem_check import ProblemCheck
from tests import samples
from tests.cli.conftest import MAIN, ROOT, cli, query
from tests.fakes import FakeGrader

KNOWN = "`grader problems` lists the known ones, --problems DIR adds a folder of them"

__all__ = ["cli"]


@pytest.fixture
def checkout(tmp_path):
    """KernelBench in small."""
    for level in (1, 2):
        folder = tmp_path / "KB" / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        (folder / "23_Softmax.py").write_text(samples.PROBLEM_SOURCE + f"# level {level}\n")
    (tmp_path / "KB" / "KernelBench" / "level1" / "1_Scale.py").write_text(samples.PROBLEM_SOURCE)
    return tmp_path / "KB"


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """Where folders are remembered."""
    monkeypatch.delenv("GRADER_PROBLEMS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "grader" / "problems.json"


def line(status="correct", **fields):
    source = f"# status: {status}\n{samples.SUBMISSION_SOURCE}"
    return json.dumps({"problem": "1_Scale", "source": source, "author": "ann", **fields})


# --------------------------------------------------------------------------------------------------------- runs


def test_a_run_of_kernelbench_is_graded_with_the_right_problems(cli, checkout, tmp_path):
    run = tmp_path / "run7"
    run.mkdir()
    for name in ("level_1_problem_23_sample_0", "level_2_problem_23_sample_1", "level_1_problem_1_sample_0"):
        (run / f"{name}_kernel.py").write_text(samples.SUBMISSION_SOURCE)
    (run / "notes.py").write_text("x = 1")
    result = cli("grade", "--kernelbench-run", run, "--problems", checkout, "--json")
    assert result.code == 0
    assert [(one["author"], one["problem"], one["sample"]) for one in result.objects] == [
        ("run7", "1_Scale", 0),
        ("run7", "level1/23_Softmax", 0),
        ("run7", "level2/23_Softmax", 1),
    ]
    renamed = cli("grade", "--kernelbench-run", run, "--problems", checkout, "--json", "--author", "model-x")
    assert {one["author"] for one in renamed.objects} == {"model-x"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grade"], "grader: nothing to grade; name files, folders, a .jsonl, - for stdin, or --kernelbench-run DIR"),
        (["grade", "--kernelbench-run", "."], "grader: .: no level_L_problem_P_sample_S_kernel.py in it"),
        (["grade", "none.jsonl"], "grader: none.jsonl: no such file or folder"),
        (
            ["grade", "--kernelbench-run", "run"],
            "grader: run/level_3_problem_7_sample_0_kernel.py: no problem 7 of lev",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exits_with_2(cli, tmp_path, arguments, message):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "level_3_problem_7_sample_0_kernel.py").write_text(samples.SUBMISSION_SOURCE)
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(message)
    assert result.err.count("\n") == 1


def test_a_sample_beyond_the_databases_integers_is_named_and_the_rest_is_graded(cli, checkout, tmp_path):
    """It ended the batch as a damaged database, and each later run with that database."""
    (tmp_path / "run").mkdir()
    for sample in (0, 1 << 63):
        path = tmp_path / "run" / f"level_1_problem_23_sample_{sample}_kernel.py"
        path.write_text(samples.SUBMISSION_SOURCE)
    result = cli("grade", "--kernelbench-run", "run", "--problems", checkout, "--json")
    assert (result.code, [one["sample"] for one in result.objects]) == (2, [0])
    assert f"field 'sample': {1 << 63} is out of range; samples count from 0" in result.err


@pytest.mark.parametrize("folder", [b"by\xfftes", b"two\nlines"])
def test_a_folder_may_have_any_name(cli, checkout, tmp_path, folder):
    """Its bytes need not be UTF-8; the path is stored as it is shown."""
    path = tmp_path / os.fsdecode(folder) / "ann" / "1_Scale.py"
    path.parent.mkdir(parents=True)
    path.write_text(samples.SUBMISSION_SOURCE)
    result = cli("grade", path.parent, "--problems", checkout, "--json")
    assert (result.code, [one["submission"] for one in result.objects]) == (0, ["ann/1_Scale"])


def test_a_problem_below_a_folder_that_is_not_text_is_named(cli, checkout, tmp_path):
    moved = checkout.rename(tmp_path / os.fsdecode(b"by\xfftes"))
    result = cli("problems", "--problems", moved)
    assert result.code == 2
    assert "its path is not UTF-8; rename the folder" in result.err


def test_one_bad_file_is_named_and_the_rest_is_graded(cli, checkout, tmp_path):
    for name in ("ann/1_Scale.py", "bob/1_Scael.py", "eve\ngrader: forged/1_Scale.py", "zoe/broken.py"):
        (tmp_path / "s" / name).parent.mkdir(parents=True)
        (tmp_path / "s" / name).write_text(samples.SUBMISSION_SOURCE)
    (checkout / "KernelBench" / "level1" / "broken.py").write_text("class Model(\n")
    result = cli("grade", "s", "--problems", checkout, "--json")
    assert result.code == 2
    assert [(one["author"], one["problem"]) for one in result.objects] == [("ann", "1_Scale")]
    complaints = [line for line in result.err.splitlines() if line.startswith("grader: ")]
    assert len(complaints) == 3
    assert complaints[0] == f"grader: s/bob/1_Scael.py: unknown problem '1_Scael'; did you mean 1_Scale? {KNOWN}"
    assert complaints[1].startswith("grader: s/eve\\ngrader: forged/1_Scale.py: the author 'eve\\ngrader: forged' has")
    assert "broken.py: problem 'broken' cannot be used: " in complaints[2]
    assert "level1/broken.py: syntax error in the file at line 1: " in complaints[2]


# -------------------------------------------------------------------------------------------------------- JSONL


def test_a_batch_in_jsonl_is_graded_and_kept_like_files(cli, checkout, tmp_path):
    lines = [line(), line("wrong_output", author="bob", label="v2", sample=3), "", line(author=None)]
    (tmp_path / "batch.jsonl").write_text("\n".join(lines))
    result = cli("grade", "batch.jsonl", "--problems", checkout, "--json")
    assert result.code == 0
    shown = sorted(result.objects, key=lambda one: one["author"])  # as reached: a copy comes with its source's verdict
    assert [(one["author"], one["label"], one["sample"], one["status"]) for one in shown] == [
        ("ann", None, None, "correct"),
        ("bob", "v2", 3, "wrong_output"),
        ("unknown", None, None, "correct"),
    ]
    assert query(tmp_path / "grader.db", "select author, problem from submissions order by author") == [
        ("ann", "1_Scale"),
        ("bob", "1_Scale"),
        ("unknown", "1_Scale"),
    ]
    assert len(FakeGrader.graded) == 2, "one source is graded once, whoever submits it"
    assert "(1 of a source that others in this batch have as well, graded once)" in result.err
    again = cli("grade", "batch.jsonl", "--problems", checkout, "--json")
    assert sorted(again.objects, key=lambda one: one["author"]) == shown
    assert len(FakeGrader.graded) == 2
    assert "(3 from the database" in again.err


BAD = [
    (b"{", "invalid JSON: Expecting property name"),
    (b"[1]", "a JSON list instead of an object"),
    (b"\xff", "invalid UTF-8: byte 0xff at offset 0"),
    (b"[" * 100_000, "invalid JSON"),
    (b"1" * 10_000, "invalid JSON"),
    (b'"' + b"x" * MAX_LINE_BYTES + b'"', f"longer than {MAX_LINE_BYTES} bytes"),
    (b'{"problem": "1_Scale"}', "missing field 'source'"),
    (line(problem="1_Scael").encode(), "unknown problem '1_Scael'; did you mean 1_Scale?"),
    (line(problem=7).encode(), "field 'problem': int instead of a string"),
    (line(problem="/etc/problem.py").encode(), "unknown problem '/etc/problem.py'"),
    (line(sample=-1).encode(), "field 'sample': -1 is out of range"),
    (line(sample=1 << 70).encode(), "field 'sample': "),
    (line(author=["a"]).encode(), "field 'author': must be a valid string"),
    (line(author="\ud800").encode(), "invalid text: an unpaired surrogate"),
    (line(label="v2\ngrader: forged").encode(), "the label 'v2\\ngrader: forged' has characters that are not printed"),
    (line(speed=2).encode(), "unknown field 'speed'"),
    (line(author="a" * 100_000).encode(), "the author has 100000 characters; at most 255 are taken"),
    (line(label="v" * 256).encode(), "the label has 256 characters; at most 255 are taken"),
    (line(**{"b" * 100_000: 1}).encode(), "unknown field 'bbb"),
    (line(problem="c" * 100_000).encode(), "unknown problem 'ccc"),
]


@pytest.mark.parametrize("bad", BAD, ids=[message[:24] for _, message in BAD])
def test_a_bad_line_is_named_and_does_not_stop_the_others(cli, checkout, tmp_path, bad):
    text, message = bad
    (tmp_path / "batch.jsonl").write_bytes(b"\n".join([line().encode(), text, line(author="bob").encode()]))
    result = cli("grade", "batch.jsonl", "--problems", checkout, "--json")
    assert result.code == 2
    assert [one["author"] for one in result.objects] == ["ann", "bob"]
    (complaint,) = [one for one in result.err.splitlines() if one.startswith("grader: ")]
    assert complaint.startswith(f"grader: batch.jsonl, line 2: {message}")
    assert len(complaint) < 1100


def test_a_missing_variant_is_a_bad_line(cli, checkout, tmp_path):
    (tmp_path / "batch.jsonl").write_text(line())
    result = cli("grade", "batch.jsonl", "--problems", checkout, "--variant", "tiny")
    assert (result.code, result.out) == (2, "")
    assert "batch.jsonl, line 1: problem 1_Scale has no variant 'tiny'; it has full" in result.err


def test_options_override_what_lines_say(cli, checkout, tmp_path):
    (tmp_path / "batch.jsonl").write_text(line())
    options = ("--problem", "level2/23_Softmax", "--author", "eve")
    (one,) = cli("grade", "batch.jsonl", "--problems", checkout, "--json", *options).objects
    assert (one["problem"], one["author"]) == ("level2/23_Softmax", "eve")


def test_a_text_that_is_too_long_gets_a_verdict(cli, checkout, tmp_path):
    (tmp_path / "batch.jsonl").write_text(line(source="#" * (1 << 21)))
    (one,) = cli("grade", "batch.jsonl", "--problems", checkout, "--json").objects
    assert one["status"] == "invalid_submission"


def test_each_line_on_stdin_is_answered_before_the_next_is_sent(checkout, tmp_path):
    command = [sys.executable, "-c", MAIN.format(gate=str(ROOT)), "grade", "-", "--json", "--problems", checkout]
    process = subprocess.Popen(
        [*command, "--db", tmp_path / "grader.db"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    stuck = threading.Timer(120, process.kill)
    stuck.start()
    try:
        for sample in range(3):
            process.stdin.write(line(sample=sample) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["sample"] == sample
        rest, err = process.communicate(line(sample=7) + "\n" + line(sample=8), timeout=120)
    finally:
        stuck.cancel()
        process.kill()
        process.wait()
    assert [json.loads(one)["sample"] for one in rest.splitlines()] == [7, 8]
    assert process.returncode == 0
    assert "5 graded" in err


# ------------------------------------------------------------------------------------------ remembered folders


def offered(cli, *options):
    return {json.loads(one)["id"] for one in cli("problems", "--json", *options).out.splitlines()}


def test_a_remembered_folder_is_offered_by_later_commands(cli, checkout, memory, tmp_path, monkeypatch):
    assert "1_Scale" not in offered(cli)
    result = cli("problems", "add", "KB")
    assert (result.code, result.out) == (0, "")
    assert result.err == f"{checkout}: remembered in {memory}; 3 more problems with it\n"
    assert json.loads(memory.read_text()) == {"folders": [str(checkout)]}
    assert {"1_Scale", "level1/23_Softmax", "level2/23_Softmax"} <= offered(cli)
    (tmp_path / "batch.jsonl").write_text(line())
    assert cli("grade", "batch.jsonl").code == 0
    assert "remembered already" in cli("problems", "add", checkout).err
    monkeypatch.chdir("/")
    assert cli("problems", "remove", checkout).code == 0
    assert "1_Scale" not in offered(cli)
    assert checkout.exists()


def test_a_named_folder_replaces_a_remembered_one(cli, checkout, memory, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.py").write_text(samples.PROBLEM_SOURCE)
    cli("problems", "add", other)
    named = tmp_path / "named"
    named.mkdir()
    (named / "mine.py").write_text(samples.PROBLEM_SOURCE)
    found = {json.loads(one)["id"]: json.loads(one) for one in cli("problems", "--json").out.splitlines()}
    assert found["mine"]["path"] == str(other / "mine.py")
    found = {one["id"]: one for one in cli("problems", "--json", "--problems", named).objects}
    assert found["mine"]["path"] == str(named / "mine.py")


def test_a_missing_remembered_folder_is_named_and_passed_over(cli, checkout, memory, tmp_path):
    cli("problems", "add", checkout)
    checkout.rename(tmp_path / "moved")
    result = cli("problems", "--json")
    assert result.code == 0
    assert result.err == f"{checkout}: remembered, but not there; `grader problems remove {checkout}` forgets it\n"
    assert cli("problems", "remove", "KB").code == 0
    assert cli("problems", "--json").err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "nowhere"], "grader: nowhere: no such file or folder"),
        (["add", "empty"], "grader: empty: no problem in it"),
        (["remove", "KB"], "grader: KB: not remembered; remembered are: none"),
        (["check", "1_Scael", "--problems", "KB"], "grader: unknown problem '1_Scael'; did you mean 1_Scale?"),
        (["--json", "check"], "grader: put the options after the command: grader problems check ..."),
    ],
)
def test_a_mistake_about_folders_is_one_line(cli, checkout, memory, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    result = cli("problems", *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(message)
    assert not memory.exists()


@pytest.mark.parametrize("text", ["", "[]", '{"folders": 3}', '{"folders": [3]}', "{"])
def test_a_damaged_file_of_remembered_folders_is_named(cli, memory, text):
    memory.parent.mkdir(parents=True)
    memory.write_text(text)
    result = cli("problems")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert result.err.startswith(f'grader: {memory}: not {{"folders": ["DIR", ...]}}')


def test_a_variable_names_another_file(cli, checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("GRADER_PROBLEMS", str(tmp_path / "here.json"))
    cli("problems", "add", checkout)
    assert (tmp_path / "here.json").exists()


@pytest.fixture
def checked(monkeypatch):
    """Ids that `problems check` would check, in order."""
    ids = []

    class Recorder:
        def __init__(self, **_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def check(self, problem, *, more_to_come):
            ids.append(problem.id)
            return ProblemCheck(id=problem.id, path=str(problem.path), gradable=True)

    monkeypatch.setattr("grader.grading.problem_check.Checker", Recorder)
    return ids


@pytest.mark.parametrize(
    ("options", "own", "remembered", "shipped"),
    [
        (["--problems", "named"], True, False, False),
        (["--problems", "named", "--shipped"], True, False, True),
        (["--shipped"], False, False, True),
        ([], False, True, True),
    ],
)
def test_a_named_folder_is_checked_alone(cli, checkout, memory, tmp_path, checked, options, own, remembered, shipped):
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "mine.py").write_text(samples.PROBLEM_SOURCE)
    assert cli("problems", "add", checkout).code == 0
    assert cli("problems", "check", *options).code == 0
    assert ("mine" in checked, "1_Scale" in checked) == (own, remembered)
    assert ("conv2d_mul_leaky_relu_gelu" in checked) == shipped


@pytest.mark.slow
def test_problems_are_checked_one_after_another(cli, checkout):
    level = checkout / "KernelBench" / "level1"
    (level / "5_Nothing.py").write_text(samples.PROBLEM_SOURCE.replace("return x *", "return 0 * x *"))
    (level / "6_Broken.py").write_text("import nowhere\n" + samples.PROBLEM_SOURCE)
    (level / "notes.py").write_text("x = 1")
    result = cli("problems", "check", "1_Scale", "5_Nothing", "6_Broken", "--problems", checkout, "--format", "table")
    assert result.code == 0
    first, second, third = result.out.splitlines()
    assert first == "gradable     1_Scale"
    assert second == "gradable     5_Nothing: outputs filled with a constant pass the tolerance: 0"
    assert third.startswith("not gradable 6_Broken: does_not_load: needs the package `nowhere`, which")
    assert result.err == f"skipped {level}/notes.py: it has no class Model and no get_inputs()\n"
    (one,) = cli("problems", "check", "5_Nothing", "--problems", checkout, "--json").objects
    assert (one["gradable"], one["remark"]) == (True, "outputs filled with a constant pass the tolerance: 0")
