"""The log: silent by default, to stderr by --log-level, as JSON lines by --log-file."""

import json
import logging

import pytest

from grader.catalog.requests import make_request
from grader.cli._logging import start_logging
from grader.errors import UserError
from grader.grading.record import Record
from grader.options import GraderOptions
from grader.verdict.models import Device, Diagnosis, Settings
from tests import samples


@pytest.fixture(autouse=True)
def logger():
    """Without handlers before and after."""
    logger = logging.getLogger("grader")
    before = (logger.level, list(logger.handlers))
    yield logger
    for handler in logger.handlers[len(before[1]) :]:
        handler.close()
    logger.level, logger.handlers = before


def record():
    request = make_request(
        samples.problem(), samples.submission(), GraderOptions(device="cpu"), default_device=Device.CPU
    )
    return Record(request)


def test_a_stage_is_a_line_of_json_with_its_fields(tmp_path):
    start_logging(None, tmp_path / "log.jsonl")
    one = record()
    with one.stage("forward"):
        pass
    with pytest.raises(RuntimeError), one.stage("backward"):
        raise RuntimeError
    one.diagnoses.append(Diagnosis(code="needs_cuda", stage="build", message="-", severity="info"))
    one.verdict(Settings(device="cpu"), samples.environment())
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["status"]) for line in lines] == [
        ("forward", "done"),
        ("backward", "stopped"),
        ("verdict", "not_run"),
    ]
    first = lines[0]
    assert {first["level"], first["logger"], first["submission"]} == {"info", "grader.grading.record", "ann/scale"}
    assert first["seconds"] >= 0
    assert set(first) == {"time", "level", "logger", "message", "submission", "device", "seconds", "stage", "status"}


def test_a_level_is_shown_on_stderr_from_there_on(capsys):
    start_logging("warning", None)
    logging.getLogger("grader.x").info("unseen")
    logging.getLogger("grader.x").warning("seen")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING grader.x: seen")


def test_a_traceback_is_kept(tmp_path, logger):
    start_logging("error", tmp_path / "log.jsonl")
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("failed")
    line = json.loads((tmp_path / "log.jsonl").read_text())
    assert line["message"] == "failed"
    assert line["traceback"].endswith("ValueError: no")


def test_mistakes_are_the_callers(tmp_path):
    with pytest.raises(UserError, match="--log-level loud: choose debug, info, warning, error"):
        start_logging("loud", None)
    with pytest.raises(UserError, match="cannot be written"):
        start_logging(None, tmp_path / "no" / "log.jsonl")


def test_options_stand_before_the_command(cli, batch, tmp_path):
    result = cli("--log-level", "info", "--log-file", tmp_path / "log.jsonl", *batch)
    assert result.code == 0
    assert (tmp_path / "log.jsonl").exists()
    assert cli("--log-level", "loud", *batch).code == 2
