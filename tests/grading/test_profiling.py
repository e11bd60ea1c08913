"""A profile of a submission beside its reference: in the sandbox, stored, on the verdict's page, never a verdict."""

import json

import pytest
from typer.testing import CliRunner

from db import Store
from db.profiles import newest_profiles, read_profile, save_profile
from db.rows import read_rows
from grader.api import Grader
from grader.cli import app
from grader.errors import Cancelled, UserError
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.profiles import CLAIM, Profile
from tests import samples

RIGHT = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x.mul(self.weight).add(0.0)
"""
RAISES = RIGHT.replace("return x.mul", 'raise RuntimeError("not today")\n        return x.mul')
NOT_BUILT = RIGHT.replace("self.weight = nn", 'raise ValueError("no")\n        self.weight = nn')


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A problem `scale`, and ann's submission for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "scale.py").write_text(samples.PROBLEM_SOURCE)
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / "scale.py").write_text(RIGHT)
    return tmp_path


def test_a_profile_is_printed_stored_and_shown_on_the_verdicts_page(folder):
    def run(*arguments):
        result = CliRunner().invoke(app, [*arguments, "--problems", "problems"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    text = run("profile", "ann/scale.py", "--device", "cpu")
    words = " ".join(text.split())
    assert CLAIM in words
    assert "ann/scale beside its reference" in words
    assert {"aten::mul", "aten::add", "MulBackward0"} <= set(words.split())
    told = Profile.model_validate_json(run("profile", "ann/scale.py", "--device", "cpu", "--format", "json"))
    assert told.trust == "claim"
    assert {kernel.name for kernel in told.candidate.forward.kernels} >= {"aten::mul", "aten::add"}
    assert "aten::add" not in {kernel.name for kernel in told.reference.forward.kernels}
    assert told.reference.forward.work.bytes == 4 * (4 * 8 + 8 + 4 * 8)
    assert told.candidate.forward.work == told.reference.forward.work
    assert told.reference.backward.kernels
    run("grade", "ann/scale.py", "--device", "cpu", "--quick")
    with Store.open("grader.db") as store:
        assert newest_profiles(store, read_rows(store)) == [2]
        assert read_profile(store, 2) == told
    pages = CliRunner().invoke(app, ["report", "--out", "site"], catch_exceptions=False)
    assert pages.exit_code == 0
    page = (folder / "site" / "verdicts" / "1.html").read_text()
    assert "Operators of the submission" in page
    assert "<code>aten::add</code>" in page
    with Store.open("grader.db") as store:
        assert save_profile(store, told.model_copy(update={"variant": "another"})) == 3
    CliRunner().invoke(app, ["report", "--out", "site"], catch_exceptions=False)
    assert "Variant another" in (folder / "site" / "verdicts" / "1.html").read_text()


def test_what_does_not_run_is_said_in_the_profile_or_in_one_line(folder):
    with Grader(device="cpu", problems=["problems"]) as grader:
        found = grader.profile(("scale", RAISES))
        assert "not today" in found.candidate.trouble
        assert found.candidate.forward is None
        assert found.reference.forward.kernels
        with pytest.raises(UserError, match=r"scale\.py: .*ValueError: no"):
            grader.profile(("scale", NOT_BUILT))
        assert json.loads(grader.profile(("scale", RIGHT)).model_dump_json())["candidate"]["trouble"] == ""


def test_a_profile_that_is_stopped_ends_and_leaves_nothing(folder):
    with Pipeline(GraderOptions(device="cpu")) as pipeline:
        request = pipeline.request(samples.problem(source=samples.PROBLEM_SOURCE), samples.submission(source=RIGHT))
        pipeline.stop(request)
        with pytest.raises(Cancelled, match="cancelled"):
            pipeline.profile(request)
        assert not pipeline._unwanted
