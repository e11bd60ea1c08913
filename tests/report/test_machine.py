"""What programs read."""

import csv
import json

from db.leaderboard import Leaderboard
from db.summaries import Entry
from grader.report.machine import json_line, leaderboard_csv, leaderboard_json
from grader.verdict.models import Verdict
from tests import samples
from tests.report.test_boards import entry


def test_a_verdict_is_one_line_and_comes_back_equal():
    verdict = samples.verdict()
    line = json_line(verdict)
    assert "\n" not in line
    assert Verdict.model_validate_json(line) == verdict
    assert json.loads(line)["timing"]["backward"] is None


def test_infinity_is_valid_json():
    verdict = samples.verdict()
    check = verdict.backward.gradients[0].model_copy(update={"max_abs_error": float("nan")})
    verdict = verdict.model_copy(update={"backward": verdict.backward.model_copy(update={"gradients": (check,)})})

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    assert json.loads(json_line(verdict), parse_constant=refuse)


def test_a_board_as_csv_has_a_header_and_empty_cells_for_absent():
    board = Leaderboard(board="total", entries=(entry(author='a "b", c'), entry(rank=None)), summaries=())
    first, second = csv.DictReader(leaderboard_csv(board).splitlines())
    assert list(first) == list(Entry.model_fields)
    assert first["author"] == 'a "b", c'
    assert (second["rank"], second["label"]) == ("", "")


def test_a_board_as_json_comes_back_equal():
    board = Leaderboard(board="total", entries=(entry(),), summaries=())
    assert Leaderboard.model_validate_json(leaderboard_json(board)) == board
