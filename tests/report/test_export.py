"""What other programs get of stored verdicts, held against what they do with it."""

import csv
import io
import json
import math
import sqlite3
import subprocess
import sys

import pyarrow.parquet
import pytest

from db import Store
from grader.verdict.columns import EXPORTED
from grader.verdict.models import Device, Settings, Status, Verdict
from grader.verdict.stages import FigureTiming, TimingResult
from tests import samples
from tests.cli.conftest import ROOT, cli

__all__ = ["cli"]

COLUMNS = [column.name for column in EXPORTED]

LEVELS = {"1_Scale": "level1", "2_Add": "level1", "10_Last": "level1", "7_Other": "level2"}


@pytest.fixture
def keep(tmp_path):
    """Stores verdicts, as `grader grade` would."""
    with Store.open(tmp_path / "grader.db") as store, store.run(["grade"]) as run:

        def save(problem_id="scale", status=Status.CORRECT, **fields):
            where = {key: fields.pop(key) for key in ("author", "label", "sample") if key in fields}
            submission = samples.submission(problem_id=problem_id, **where)
            folder = LEVELS.get(problem_id, "problems")
            problem = samples.problem(
                problem_id,
                source=f"{samples.PROBLEM_SOURCE}# {problem_id}\n",
                path=samples.Path(f"/KB/KernelBench/{folder}/{problem_id}.py"),
            )
            verdict = samples.verdict(submission, status, problem_source=problem.source, **fields)
            return store.save(verdict, submission, problem, run)

        yield save


def forward_timing(*milliseconds):
    phase = FigureTiming(
        candidate_ms=2.0,
        reference_ms=4.0,
        speedup=2.0,
        ci_low=1.9,
        ci_high=2.1,
        rounds=len(milliseconds),
        candidate_samples_ms=milliseconds,
        reference_samples_ms=tuple(2 * one for one in milliseconds),
    )
    return TimingResult(status="passed", variant="full", forward=phase)


# ------------------------------------------------------------------------------------------------ jsonl and flat


def test_jsonl_is_what_was_stored(cli, keep):
    kept = [keep(author="ann"), keep(author="bob", status=Status.MISSING_BACKWARD)]
    result = cli("export")
    assert result.code == 0
    assert [Verdict.model_validate_json(line) for line in result.out.splitlines()] == kept


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--author", "bob"], [2, 3]),
        (["--problem", "2_Add"], [3]),
        (["--status", "missing_backward"], [2]),
        (["--author", "bob", "--status", "correct"], [3]),
        (["--author", "nobody"], []),
    ],
)
def test_what_goes_out_may_be_chosen(cli, keep, options, wanted):
    keep(author="ann")
    keep(author="bob", status=Status.MISSING_BACKWARD)
    keep("2_Add", author="bob")
    assert [one["verdict_id"] for one in cli("export", *options).objects] == wanted


def test_csv_has_a_row_a_verdict_and_empty_cells_for_absent(cli, keep):
    keep(author='a "quoted",\nname', label=None)
    keep(author="bob", status=Status.WRONG_OUTPUT, sample=3)
    rows = list(csv.DictReader(io.StringIO(cli("export", "--format", "csv").out)))
    assert list(rows[0]) == COLUMNS
    assert (rows[0]["author"], rows[0]["label"], rows[0]["code"]) == ('a "quoted",\\nname', "", "")
    assert (rows[0]["total_speedup"], rows[0]["forward_candidate_ms"]) == ("2.0", "1.0")
    assert (rows[1]["sample"], rows[1]["code"], rows[1]["forward_status"]) == ("3", "output_wrong", "failed")


@pytest.mark.parametrize(
    ("author", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "\\t=1"),
        ("\r=1", "\\r=1"),
        ("\uff1d1", "'\uff1d1"),
        (" =1", "' =1"),
        ("\u202e=1", "\\u202e=1"),
        ("a\n#9 correct\x1b[2J\u2028b", "a\\n#9 correct\\x1b[2J\\u2028b"),
        ("a\u2066b", "a\\u2066b"),
        ("a\reve,correct", "a\\reve,correct"),
        ("a=1", "a=1"),
        ("a; =1;b;@c", "a;' =1;b;'@c"),
        ("an\u200bn", "an\\u200bn"),
        ("a\U000e0041", "a\\U000e0041"),
    ],
)
def test_csv_has_no_formulas_and_no_reordered_text(cli, keep, author, cell):
    keep(author=author, forward={"status": "failed", "rel_rms_error": -math.inf}, status=Status.WRONG_OUTPUT)
    row = next(csv.DictReader(io.StringIO(cli("export", "--format", "csv").out, newline="")))
    assert row["author"] == cell
    assert row["rel_rms_error"] == "-inf"


def test_json_has_no_character_that_breaks_or_reorders_a_line(cli, keep):
    name = "e\u2028v\x85i\u202el\x7f é\u2060\U000e0041"
    keep(author=name)
    result = cli("export")
    assert result.objects[0]["author"] == name
    assert "e\\u2028v\\u0085i\\u202el\\u007f é\\u2060\\udb40\\udc41" in result.out


@pytest.mark.parametrize("output", ["jsonl", "csv", "kernelbench"])
def test_a_choice_that_matches_nothing_is_reported(cli, keep, output):
    keep(author="ann")
    result = cli("export", "--author", "nobody", "--status", "correct", "--format", output)
    assert (result.code, result.err) == (0, "no verdict matches --author nobody --status correct\n")
    assert cli("export", "--author", "ann").err == ""


def test_a_database_without_verdicts_is_reported(cli, keep):
    assert cli("export").err == "no verdicts yet\n"


def test_parquet_has_the_same_columns_with_types(cli, keep, tmp_path):
    keep(author="ann", sample=1)
    keep(author="bob", status=Status.WRONG_OUTPUT)
    result = cli("export", "--format", "parquet", "--out", "v.parquet")
    assert (result.code, result.out) == (0, "")
    table = pyarrow.parquet.read_table(tmp_path / "v.parquet")
    assert table.column_names == COLUMNS
    assert table["sample"].to_pylist() == [1, None]
    assert table["total_speedup"].to_pylist() == [2.0, None]
    assert table["quick"].to_pylist() == [False, False]
    assert [str(table.schema.field(name).type) for name in ("label", "seconds")] == ["string", "double"]


def test_parquet_goes_through_a_pipe(keep, tmp_path):
    keep()
    command = [sys.executable, "-m", "grader", "export", "--format", "parquet", "--db", tmp_path / "grader.db"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert pyarrow.parquet.read_table(pyarrow.BufferReader(done.stdout))["problem"].to_pylist() == ["scale"]


def test_an_empty_choice_has_a_header(cli, keep, tmp_path):
    keep()
    nobody = ("export", "--author", "nobody", "--format")
    assert cli(*nobody, "csv").out == ",".join(COLUMNS) + "\n"
    assert cli(*nobody, "kernelbench").out == "{}\n"
    assert cli(*nobody, "parquet", "--out", "v.parquet").code == 0
    assert pyarrow.parquet.read_table(tmp_path / "v.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "no/such/folder"], "grader: no/such/folder: cannot be written (No such file or directory)"),
        (["--level", "1"], "grader: --level is for --format kernelbench"),
        (["--db", "none.db"], "grader: none.db: there is no such database"),
    ],
)
def test_a_mistake_is_one_line(cli, keep, options, message):
    keep()
    result = cli("export", *options)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(message)


def test_without_pyarrow_the_remedy_is_named(cli, keep, monkeypatch, tmp_path):
    keep()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = cli("export", "--format", "parquet", "--out", "v.parquet")
    assert result.code == 2
    remedy = "grader: Parquet needs pyarrow; `pip install '.[parquet]'` in the grader's checkout, or use --format csv\n"
    assert result.err == remedy
    assert not (tmp_path / "v.parquet").exists()


def test_a_verdict_of_another_version_is_passed_over(cli, keep, tmp_path):
    keep()
    keep()
    connection = sqlite3.connect(tmp_path / "grader.db")
    with connection:
        connection.execute("update verdicts set document = '{}' where id = 1")
    connection.close()
    result = cli("export")
    assert [one["verdict_id"] for one in result.objects] == [2]
    assert result.err == "1 verdicts written by another version of the grader are left out\n"


# --------------------------------------------------------------------------------------------------- KernelBench


def results(cli, *options):
    answer = cli("export", "--format", "kernelbench", *options)
    assert answer.code == 0
    return json.loads(answer.out), answer.err


def test_kernelbench_counts_what_it_counts_there(cli, keep):
    """The reading side: samples numbered 0, one a problem at most; compiled and correct counted; runtimes divided."""
    keep("10_Last", sample=0, timing=forward_timing(1.0, 3.0))
    keep("2_Add", sample=0, status=Status.WRONG_OUTPUT)
    keep("1_Scale", sample=0, status=Status.MISSING_BACKWARD, timing=forward_timing(5.0))
    keep("1_Scale", sample=1, status=Status.BUILD_ERROR, build={"status": "failed"}, forward=None)
    found, err = results(cli)
    assert err == ""
    assert list(found) == ["1", "2", "10"]
    first = {}
    for problem, entries in found.items():
        (first[problem],) = [entry for entry in entries if entry["sample_id"] == 0]
        for entry in entries:
            assert type(entry["compiled"]) is type(entry["correctness"]) is bool
            assert isinstance(entry["metadata"], dict)
            assert isinstance(entry["runtime"], float)
            assert isinstance(entry["runtime_stats"], dict)
    assert {problem: entry["correctness"] for problem, entry in first.items()} == {"1": True, "2": False, "10": True}
    assert [entry["compiled"] for entry in found["1"]] == [True, False]
    baseline = {"1": 10.0, "10": 4.0}
    assert [baseline[key] / first[key]["runtime"] for key in baseline] == [2.0, 2.0]
    assert first["10"]["runtime_stats"] == {"mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0, "num_trials": 2}
    assert first["10"]["ref_runtime"] == 4.0
    assert (first["2"]["runtime"], first["2"]["runtime_stats"]) == (-1.0, {})


def test_a_missing_backward_is_correct_there_and_metadata_says_so(cli, keep):
    keep("1_Scale", status=Status.MISSING_BACKWARD, timing=forward_timing(1.0))
    found, _ = results(cli)
    (entry,) = found["1"]
    assert entry["correctness"] is True
    assert (entry["metadata"]["status"], entry["metadata"]["backward"]) == ("missing_backward", "failed")
    assert entry["metadata"]["hardware"] == "a CPU"


def test_cheating_is_not_correct(cli, keep):
    keep("1_Scale", status=Status.INTEGRITY_VIOLATION, forward={"status": "passed"})
    assert results(cli)[0]["1"][0]["correctness"] is False


def test_a_right_forward_without_a_time_is_told(cli, keep):
    keep("1_Scale", status=Status.WRONG_BACKWARD, timing=None)
    found, err = results(cli)
    assert (found["1"][0]["correctness"], found["1"][0]["runtime"]) == (True, -1.0)
    assert err.startswith("1 results are correct and have no runtime (-1)")


def test_the_newest_verdict_on_a_sample_counts(cli, keep):
    keep("1_Scale", sample=0, status=Status.WRONG_OUTPUT)
    keep("1_Scale", sample=0)
    assert [entry["metadata"]["verdict_id"] for entry in results(cli)[0]["1"]] == [2]


def test_submissions_without_a_sample_get_free_numbers(cli, keep):
    keep("1_Scale", label="v1")
    keep("1_Scale", sample=1)
    keep("1_Scale", label="v2")
    entries = results(cli)[0]["1"]
    assert [entry["sample_id"] for entry in entries] == [0, 1, 2]
    assert [entry["metadata"].get("label") for entry in entries] == ["v1", None, "v2"]


def test_what_says_nothing_is_left_out_and_counted(cli, keep):
    keep("scale")
    keep("1_Scale", status=Status.NOT_RUN)
    keep("1_Scale", status=Status.GRADER_ERROR)
    keep("1_Scale", settings=Settings(device=Device.CPU, variant="full"))
    found, err = results(cli)
    assert found == {}
    assert err.startswith("4 verdicts are left out")


def test_one_run_and_one_level_have_to_be_chosen(cli, keep):
    keep("1_Scale")
    keep("7_Other")
    answer = cli("export", "--format", "kernelbench")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "grader: the file holds one run of one level, and there are several levels: 1, 2; choose: --level\n"
    )
    assert list(results(cli, "--level", "2")[0]) == ["7"]
    keep("7_Other", author="bob")
    assert "several authors: ann, bob; choose: --author" in cli("export", "--format", "kernelbench", "--level=2").err


def test_numbers_that_json_does_not_have_stay_out(cli, keep):
    keep("1_Scale", forward={"status": "failed", "rel_rms_error": math.inf}, status=Status.WRONG_OUTPUT)
    json.loads(cli("export", "--format", "kernelbench").out, parse_constant=pytest.fail)
    row = next(csv.DictReader(io.StringIO(cli("export", "--format", "csv").out)))
    assert row["rel_rms_error"] == "inf"
