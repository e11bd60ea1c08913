"""The GitHub Action: its script is run with a grader that prints verdicts as `grader grade --json` does."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from grader.report.json_csv import json_line
from grader.verdict.models import Diagnosis, Status
from tests import samples

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "github_action"


@pytest.fixture
def run(tmp_path):
    """Runs the script on a folder with one file, for these verdicts; returns it and the summary."""
    (tmp_path / "work" / "ann").mkdir(parents=True)
    (tmp_path / "work" / "ann" / "scale.py").write_text("x = 1\n")

    def call(*verdicts, status=0, **variables):
        (tmp_path / "verdicts").write_text("".join(f"{json_line(one)}\n" for one in verdicts))
        fake = tmp_path / "grader"
        fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/verdicts\nexit {status}\n')
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        summary = tmp_path / "summary.md"
        summary.unlink(missing_ok=True)
        given = {"GRADER": str(fake), "SUBMISSIONS": "work", "GITHUB_STEP_SUMMARY": str(summary), **variables}
        done = subprocess.run(
            [SCRIPT], cwd=tmp_path, env={**os.environ, **given}, capture_output=True, text=True, check=False
        )
        return done, summary.read_text(), (tmp_path / "asked").read_text()

    return call


def verdict(status=Status.CORRECT, message="wrong", **more):
    faults = () if status is Status.CORRECT else (Diagnosis(code="output_wrong", stage="forward", message=message),)
    return samples.verdict(samples.submission("ann", "scale"), status, diagnoses=faults, **more)


def test_correct_submissions_make_a_table_and_no_annotation(run):
    done, summary, asked = run(verdict(total=2.0), PROBLEMS="problems", ARGUMENTS="--quick --device cpu")
    assert (done.returncode, done.stdout) == (0, "")
    assert "### 1 of 1 submissions are correct" in summary
    assert r"| ann/scale | scale | correct | 2.00x | 1.80 to 2.22 |  |" in summary
    assert asked == "grade work --json --problems problems --quick --device cpu\n"


def test_a_wrong_one_is_annotated_and_fails_the_job(run):
    done, summary, _ = run(verdict(Status.WRONG_OUTPUT, "`output` is wrong, by 3%"))
    assert done.returncode == 1
    assert done.stdout == (
        "::error file=work/ann/scale.py,title=ann/scale%3A wrong_output::output_wrong: `output` is wrong, by 3%25\n"
    )
    assert r"| wrong\_output |" in summary
    assert run(verdict(Status.WRONG_OUTPUT), FAIL="false")[0].returncode == 0


def test_what_the_grader_could_not_do_fails_the_job_in_any_case(run):
    assert run(verdict(), status=2, FAIL="false")[0].returncode == 2


def test_a_submission_can_forge_neither_a_row_nor_a_command(run):
    done, summary, _ = run(verdict(Status.WRONG_OUTPUT, "x\n::set-output name=a::b\r\n| a | <b>@all"))
    assert len(done.stdout.splitlines()) == 1
    assert len(summary.strip().splitlines()) == 5
    assert r"\| a \| \<b\>\@all" in summary


def test_the_action_runs_the_script_with_its_inputs():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    install, grade = action["runs"]["steps"]
    assert action["runs"]["using"] == "composite"
    assert "scripts/github_action" in grade["run"]
    assert os.access(SCRIPT, os.X_OK)
    used = {value.removeprefix("${{ inputs.").removesuffix(" }}") for value in grade["env"].values()}
    assert used == set(action["inputs"])
    for step in (install, grade):
        assert "${{" not in step["run"], "an input in a shell's text could be a command"
        assert subprocess.run(["bash", "-n", "-c", step["run"]], check=False).returncode == 0
