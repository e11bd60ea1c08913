"""The command line as a user meets it: what it prints where, how it exits, what it leaves in the database."""

import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import grader.cli.grade
from db import Store
from grader.errors import SandboxUnavailable, UserError
from grader.grading.build import BuildCache
from tests.cli.conftest import MAIN, ROOT, query, write
from tests.fakes import FakeGrader

# ------------------------------------------------------------------------------------------------------- grade


def test_a_batch_is_graded_and_kept(cli, batch, tmp_path):
    result = cli(*batch)
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == ["correct", "wrong_output", "missing_backward"]
    assert "#2 bob/scale on cpu: output_wrong: The output is wrong" in result.out
    assert result.err == "3 graded: 1 correct, 1 wrong_output, 1 missing_backward\n"
    assert query(tmp_path / "grader.db", "select author, status from verdicts order by id") == [
        ("ann", "correct"),
        ("bob", "wrong_output"),
        ("eve", "missing_backward"),
    ]
    assert query(tmp_path / "grader.db", "select outcome from runs") == [("finished",)]


def test_json_is_one_object_a_verdict_with_null_for_absent(cli, batch):
    result = cli(*batch, "--json")
    assert [one["verdict_id"] for one in result.objects] == [1, 2, 3]
    wrong = result.objects[1]
    wanted = (
        "verdict_id submission author label problem device status diagnoses build forward backward timing environment "
        "created_at schema_version"
    )
    assert set(wanted.split()) <= set(wrong)
    assert wrong["label"] is None
    assert set(wrong["diagnoses"][0]) >= {"code", "stage", "message", "detail"}
    assert set(wrong["build"]) >= {"status", "seconds", "cached", "log_tail"}
    assert set(wrong["forward"]) >= {
        "status",
        "variants",
        "max_abs_error",
        "rel_rms_error",
        "passes_1e_4",
        "passes_1e_2",
    }
    assert set(result.objects[0]["timing"]) >= {"forward", "backward", "total"}
    assert "3 graded" in result.err
    assert "wrong_output" in result.err


def test_what_is_known_is_shown_from_the_database(cli, batch):
    first = cli(*batch, "--json")
    again = cli(*batch, "--json")
    assert again.objects == first.objects
    assert len(FakeGrader.graded) == 3
    assert "(3 from the database; --regrade grades again)" in again.err


def test_only_what_changed_is_graded_again(cli, batch, tmp_path):
    cli(*batch)
    write(tmp_path, "bob", "correct")
    cli(*batch)
    assert FakeGrader.graded == ["ann/scale", "bob/scale", "eve/scale", "bob/scale"]


@pytest.mark.parametrize("option", ["--regrade", "--quick", "--device=cuda", "--variant=full"])
def test_asking_anew_or_differently_grades_again(cli, batch, option):
    cli(*batch)
    cli(*batch, option)
    assert len(FakeGrader.graded) == 6


def test_our_own_failure_exits_with_1_and_is_tried_again(cli, batch, tmp_path):
    write(tmp_path, "bob", "grader_error")
    assert cli(*batch).code == 1
    assert cli(*batch).code == 1
    assert FakeGrader.graded == ["ann/scale", "bob/scale", "eve/scale", "bob/scale"]


def test_an_unreadable_file_gets_a_verdict(cli, batch, tmp_path):
    (tmp_path / "submissions" / "bob" / "scale.py").write_bytes(b"\xff")
    result = cli(*batch)
    assert result.code == 0
    assert "invalid_submission" in result.out


def test_the_problem_may_be_named(cli, batch, tmp_path):
    path = write(tmp_path, "ann", "correct").rename(tmp_path / "submissions" / "kernel.py")
    result = cli("grade", path, "--problem", "scale", *batch[2:], "--json")
    assert (result.objects[0]["problem"], result.objects[0]["label"]) == ("scale", "kernel")
    file = (tmp_path / "problems" / "scale.py").rename(tmp_path / "own.py")
    result = cli("grade", path, "--problem", file, "--json")
    assert (result.objects[0]["problem"], result.objects[0]["label"]) == ("own", "kernel")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grade", "nowhere"], "grader: nowhere: no such file or folder"),
        (
            ["grade", "submissions", "--problem", "conv2d_mul"],
            "grader: unknown problem 'conv2d_mul'; did you mean conv2d",
        ),
        (["grade", "submissions", "--problems", "nowhere"], "grader: nowhere: no such file or folder"),
        (
            ["grade", "submissions", "--problems", "problems", "--db", "no/such/x.db"],
            "grader: no/such/x.db: the database",
        ),
        (
            ["grade", "submissions", "--problems", "problems", "--db", "notes.txt"],
            "grader: notes.txt: the file is not an",
        ),
        (
            ["grade", "submissions", "--problems", "problems", "--variant", "tiny"],
            "grader: problem scale has no variant",
        ),
        (["show", "1"], "grader: grader.db: there is no such database; `grader grade` makes one"),
        (["leaderboard"], "grader: grader.db: there is no such database"),
        (["problems", "--problems", "nowhere"], "grader: nowhere: no such file or folder"),
    ],
)
def test_a_mistake_is_one_line_and_exits_with_2(cli, batch, tmp_path, arguments, message):
    (tmp_path / "notes.txt").write_text("milk")
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(message)
    assert result.err.count("\n") == 1
    assert FakeGrader.graded == []


@pytest.mark.parametrize("arguments", [["grade"], ["grade", "x", "--device", "tpu"], ["show", "x"], ["--no"], ["bake"]])
def test_wrong_usage_exits_with_2_without_a_traceback(cli, arguments):
    result = cli(*arguments)
    assert result.code == 2
    assert "Traceback" not in result.err


def test_without_isolation_nothing_is_graded(cli, batch, monkeypatch):
    def refuse(_):
        raise SandboxUnavailable("bubblewrap is missing; apt-get install bubblewrap")

    monkeypatch.setattr(grader.cli.grade, "open_grader", refuse)
    result = cli(*batch)
    assert (result.code, result.err) == (1, "grader: bubblewrap is missing; apt-get install bubblewrap\n")


# --------------------------------------------------------------------------------------- processes and signals


def start(batch, tmp_path, *options, gate=ROOT, **streams):
    code = MAIN.format(gate=str(gate))
    command = [sys.executable, "-c", code, *map(str, batch), "--db", tmp_path / "grader.db"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen([*command, *options], cwd=ROOT, text=True, **streams)


def test_killed_in_mid_batch_it_goes_on_where_it_stopped(cli, batch, tmp_path):
    process = start(batch, tmp_path, gate=tmp_path / "never there")
    assert process.stdout.readline().startswith("correct")
    process.kill()
    process.communicate()
    assert query(tmp_path / "grader.db", "select author from verdicts") == [("ann",)]
    result = cli(*batch)
    assert len(result.out.splitlines()) == 3
    assert "(1 from the database" in result.err
    assert len(FakeGrader.graded) == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_interrupted_it_says_how_to_continue_and_keeps_what_it_has(batch, tmp_path, number, code):
    process = start(batch, tmp_path, gate=tmp_path / "never there")
    process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in err
    assert "grader: interrupted; 1 verdict kept; run the same command to continue\n" in err
    assert query(tmp_path / "grader.db", "select outcome from runs") == [("interrupted",)]
    assert query(tmp_path / "grader.db", "select author from verdicts") == [("ann",)]


STOPS_IN_AN_IMPORT = """
import runpy, sys

class Stops:
    def find_spec(self, name, path=None, target=None):
        if name == "typer.models":
            print("there", flush=True)
            sys.stdin.read()

sys.meta_path.insert(0, Stops())
sys.argv = ["grader", "--version"]
runpy.run_module("grader", run_name="__main__", alter_sys=True)
"""


def test_interrupted_while_it_is_imported_it_says_nothing_either():
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", STOPS_IN_AN_IMPORT], text=True, **pipes) as process:
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not out
    assert "Traceback" not in err


def test_nohup_stays_in_force(batch, tmp_path):
    gate = tmp_path / "signalled"
    process = start(batch, tmp_path, gate=gate, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    gate.touch()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, len(out.splitlines())) == (0, 2)


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_reader_that_goes_away_makes_no_noise(batch, tmp_path, option):
    gate = tmp_path / "gone"
    process = start(batch, tmp_path, *option, gate=gate)
    process.stdout.readline()
    process.stdout.close()
    gate.touch()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) != 0
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_a_terminal_gets_a_bar_and_the_verdicts(batch, tmp_path):
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    one_is_shown = tmp_path / "one is shown"
    process = start(batch, tmp_path, gate=one_is_shown, stdout=child, stderr=child, env=environment)
    os.close(child)
    screen = b""
    try:
        while chunk := os.read(parent, 4096):
            screen += chunk
            if b"1/3" in screen:
                one_is_shown.touch()
    except OSError:
        pass  # Linux says EIO when the other side has closed.
    finally:
        os.close(parent)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.decode())
    assert "grading" in text
    assert "1/3" in text
    assert "bob/scale on cpu: output_wrong" in text


def test_on_a_terminal_verdicts_in_a_file_stay_in_the_file(batch, tmp_path):
    parent, child = pty.openpty()
    with (tmp_path / "out.jsonl").open("w") as out:
        process = start(batch, tmp_path, "--json", stdout=out, stderr=child, env={**os.environ, "TERM": "xterm"})
    os.close(child)
    try:
        while os.read(parent, 4096):
            pass
    except OSError:
        pass  # Linux says EIO when the other side has closed.
    finally:
        os.close(parent)
    assert process.wait() == 0
    assert len([json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]) == 3


# --------------------------------------------------------------------------------------- show and leaderboard


def test_show_begins_with_the_diagnosis_and_ends_with_the_source(cli, batch):
    cli(*batch)
    result = cli("show", "3")
    assert result.code == 0
    parts = ["missing_backward", "output_wrong", "Gradients", "Build log", "Environment", "class ModelNew"]
    positions = [result.out.index(part) for part in parts]
    assert positions == sorted(positions)
    assert "autograd gave no gradient for it" in result.out


def test_show_as_json_is_the_verdict_as_graded(cli, batch):
    graded = cli(*batch, "--json").objects
    assert cli("show", "2", "--json").objects == [graded[1]]


def test_show_gives_the_feedback_for_a_prompt(cli, batch):
    cli(*batch)
    result = cli("show", "2", "--feedback", "--max-tokens", "200")
    assert result.out.startswith("wrong_output: output_wrong: An output's values are wrong.\n")
    assert "The output is wrong; look at index (0, 3)." in result.out
    assert len(result.out) < 600
    refused = cli("show", "2", "--feedback", "--json")
    assert (refused.code, refused.err) == (2, "grader: --json and --feedback: choose one of them\n")


@pytest.mark.parametrize("unknown", ["99", "99999999999999999999999"])
def test_show_of_an_unknown_id(cli, batch, unknown):
    cli(*batch)
    result = cli("show", unknown)
    assert (result.code, result.err) == (2, f"grader: grader.db: no verdict {unknown}; the newest is 3\n")


def test_a_problem_that_nobody_knows_is_told_and_one_without_verdicts_is_not(cli, batch):
    cli(*batch)
    result = cli("leaderboard", "--problem", "nosuch")
    assert (result.code, result.out) == (2, "")
    assert result.err == "grader: no verdict on problem 'nosuch'; there are verdicts on scale\n"
    assert cli("leaderboard", "--problem", "conv2d_mul_leaky_relu_gelu").code == 0


@pytest.mark.parametrize("database", ["", "sqlite:some.db"])
def test_what_names_no_database_is_refused_before_anything_is_graded(cli, batch, tmp_path, database):
    result = cli(*batch, "--db", database)
    assert (result.code, result.err) == (2, f"grader: {database!r}: no database; write a path, or sqlite:///path\n")
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize("command", [["leaderboard"], ["show", "1"], ["export"], ["export", "--format", "csv"]])
def test_a_full_disk_behind_stdout_is_one_line(cli, batch, command):
    cli(*batch)
    with Path("/dev/full").open("w") as full:
        code = "import grader.cli; grader.cli.main()"
        ended = subprocess.run(
            [sys.executable, "-c", code, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr) == (
        1,
        "grader: the output could not be written: No space left on device\n",
    )


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"builds cannot be kept there .*; name another folder with --build-cache or"):
        BuildCache(tmp_path / "file" / "builds", "toolchain")


def test_leaderboards_in_all_formats(cli, batch):
    cli(*batch)
    total = json.loads(cli("leaderboard", "--format", "json").out)
    assert [entry["author"] for entry in total["entries"]] == ["ann"]
    forward = cli("leaderboard", "--board", "forward", "--format", "csv").out.splitlines()
    assert forward[0].startswith("rank,tied,problem,device,device_name,author,")
    assert [line.split(",")[5] for line in forward[1:]] == ["ann", "eve"]
    table = cli("leaderboard", "--problem", "scale").out
    assert "ann" in table
    assert "eve" not in table
    assert "no verdict on the total board yet" in cli("leaderboard", "--device", "cuda").out
    assert cli("leaderboard", "--format", "md").out.startswith("| rank | problem | author |")
    assert [
        entry["author"] for entry in json.loads(cli("leaderboard", "--board", "cpu", "--format", "json").out)["entries"]
    ] == ["ann"]
    triton = json.loads(cli("leaderboard", "--language", "triton", "--format", "json").out)
    assert (triton["labels"]["having"], triton["entries"]) == (["triton"], [])
    assert "no verdict on the strict-fp32 board yet" in cli("leaderboard", "--board", "strict-fp32").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--having", "fast"], "unknown label 'fast'; the labels are cuda_graph, "),
        (["--language", "rust"], "unknown language 'rust'; the languages are cuda, cpp, triton, "),
        (["--pass-at", "1,x"], "--pass-at 1,x: write whole numbers above 0, such as 1,5,10"),
        (["--pass-at", "0"], "--pass-at 0: write whole numbers above 0, such as 1,5,10"),
    ],
)
def test_leaderboards_that_cannot_be(cli, batch, arguments, said):
    cli(*batch)
    result = cli("leaderboard", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"grader: {said}")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("command", [["report", "--out", "out"], ["serve"], ["leaderboard"]])
def test_each_command_with_a_board_selects_by_label(cli, batch, command):
    cli(*batch)
    result = cli(*command, "--without", "nosuch")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("grader: unknown label 'nosuch'; the labels are cuda_graph, ")


def test_a_board_says_how_many_copies_it_leaves_out(cli, batch, tmp_path):
    path = write(tmp_path, "ann", "correct")
    path.write_text(f"{path.read_text()}# label: wraps_reference\n")
    cli(*batch)
    line = "1 submission left out, labelled wraps_reference; --all ranks copies of the reference too\n"
    assert cli("leaderboard").out == f"no verdict on the total board yet\n{line}"
    listed = cli("leaderboard", "--format", "csv")
    assert (listed.out.count("\n"), listed.err) == (1, line)
    assert json.loads(cli("leaderboard", "--format", "json").out)["left_out"] == 1
    assert "ann" in cli("leaderboard", "--all").out
    assert cli("report", "--out", "out").code == 0
    assert line.strip() in Path("out/index.html").read_text()


def test_pass_at_k_of_a_leaderboard(cli, batch):
    cli(*batch)
    found = json.loads(cli("leaderboard", "--pass-at", "1,2", "--format", "json").out)
    assert {one["author"]: one["pass_at_k"] for one in found["summaries"]} == {
        "ann": {"1": 1.0, "2": None},
        "bob": {"1": 0.0, "2": None},
        "eve": {"1": 0.0, "2": None},
    }


def test_two_databases_and_two_runs_are_compared(cli, batch, tmp_path):
    cli(*batch, "--db", "before.db")
    write(tmp_path, "bob", "correct")
    write(tmp_path, "eve", "wrong_output")
    cli(*batch, "--db", "after.db")
    result = cli("diff", "before.db", "after.db")
    assert result.err == "1 fixed, 1 changed, 1 moved, 1 as before\n"
    assert [line.split("\t")[:3] for line in result.out.splitlines()] == [
        ["change", "problem", "submission"],
        ["fixed", "scale", "bob"],
        ["changed", "scale", "eve"],
        ["moved", "", "bob"],
    ]
    assert cli("diff", "before.db", "after.db", "--format", "table").out.splitlines()[1].startswith("fixed    scale")
    runs = cli("diff", "1", "1", "--db", "after.db", "--format", "json")
    assert (runs.out, runs.err) == ("", "3 as before\n")


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ("7", "grader.db: no run 7; the newest is 1"),
        ("99999999999999999999999", "grader.db: no run 99999999999999999999999; the newest is 1"),
        ("nosuch.db", "nosuch.db: there is no such database; `grader grade` makes one, --db names another"),
    ],
)
def test_a_side_that_does_not_exist_is_one_line(cli, batch, side, said):
    cli(*batch)
    result = cli("diff", "1", side)
    assert (result.code, result.out, result.err) == (2, "", f"grader: {said}\n")


def test_another_database_may_be_named(cli, batch, tmp_path):
    cli(*batch, "--db", f"sqlite:///{tmp_path}/other.db")
    assert not (tmp_path / "grader.db").exists()
    with Store.open(tmp_path / "other.db", must_exist=True) as store:
        assert store.get(3).verdict.author == "eve"


# ---------------------------------------------------------------------------------------- problems and doctor


def test_problems_are_listed_with_what_is_gradable(cli, batch, tmp_path):
    (tmp_path / "problems" / "notes.py").write_text("x = 1")
    (tmp_path / "problems" / "broken.py").write_text("import nowhere\nclass Model: ...\ndef get_inputs(): ...")
    result = cli("problems", "--problems", tmp_path / "problems", "--json")
    assert result.code == 0
    assert result.err == f"skipped {tmp_path}/problems/notes.py: it has no class Model and no get_inputs()\n"
    found = {one["id"]: one for one in result.objects}
    assert found["scale"]["variants"] == ["full"]
    assert found["scale"]["backward"] is True
    assert found["broken"]["forward"] is False
    assert "needs the package `nowhere`" in found["broken"]["why_not"]
    assert "conv2d_batch_norm_silu" in found
    assert "int64 has no gradients" in cli("problems").out


@pytest.mark.parametrize("command", ["problems", "doctor", "leaderboard"])
def test_every_listing_has_every_format(cli, batch, monkeypatch, command):
    cli(*batch)
    plain = cli(command).out.splitlines()
    assert plain == cli(command, "--format", "plain").out.splitlines()
    columns = plain[0].split("\t")
    assert len(columns) > 2
    assert {line.count("\t") for line in plain} == {len(columns) - 1}
    table = cli(command, "--format", "table").out
    assert "\t" not in table
    assert len(list(csv.reader(cli(command, "--format", "csv").out.splitlines()))) == len(plain)
    as_json = cli(command, "--format", "json")
    assert len(json.loads(as_json.out)["entries"] if command == "leaderboard" else as_json.objects) == len(plain) - 1
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    assert "\t" not in cli(command).out


def test_doctor_reports_what_is_there(cli):
    result = cli("doctor")
    assert result.code in (0, 1)
    for subject in ("python", "torch", "C++ compiler", "nvcc", "GPU", "sandbox"):
        assert re.search(rf"^{re.escape(subject)}\t(ok|limited|missing)\t", result.out, re.MULTILINE), subject


def test_doctor_exits_with_1_without_isolation(cli, monkeypatch):
    def refuse(_):
        raise SandboxUnavailable("bubblewrap is missing; apt-get install bubblewrap")

    monkeypatch.setattr("grader.sandbox.choose", refuse)
    result = cli("doctor")
    assert result.code == 1
    assert re.search(r"sandbox\tmissing\tbubblewrap is missing; apt-get install bubblewrap", result.out)


def test_the_version_is_printed(cli):
    assert cli("--version").out == "0.1.0\n"
