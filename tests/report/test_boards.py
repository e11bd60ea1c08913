"""The leaderboard as a table for the terminal, in Markdown, JSON and CSV."""

import csv
import io

import pytest

from db.labels import LabelChoice
from db.leaderboard import Leaderboard
from db.summaries import Entry, Summary
from grader.report.boards import leaderboard_csv, leaderboard_json, leaderboard_markdown, leaderboard_table
from grader.report.console import console
from grader.verdict.models import Device, Status


def printed(renderable):
    stream = io.StringIO()
    console(stream).print(renderable)
    return stream.getvalue()


def entry(**fields):
    return Entry(
        **{
            "rank": 1,
            "problem": "scale",
            "device": Device.CUDA,
            "device_name": "NVIDIA H200",
            "author": "ann",
            "label": None,
            "sample": None,
            "status": Status.CORRECT,
            "speedup": 2.0,
            "ci_low": 1.9,
            "quick": False,
            "sandbox": "bubblewrap",
            "verdict_id": 7,
            "created_at": "2026-01-01T12:00:00+00:00",
            **fields,
        }
    )


def summary(**fields):
    return Summary(
        **{
            "rank": 1,
            "author": "ann",
            "device_name": "NVIDIA H200",
            "problems": 1,
            "tried": 1,
            "of": 2,
            "geometric_mean_speedup": 3.0,
            "geometric_mean_ci_low": 2.9,
            "geometric_mean_ci_high": 3.1,
            **fields,
        }
    )


def test_an_empty_board_says_so():
    board = Leaderboard(board="forward", entries=(), summaries=())
    assert printed(leaderboard_table(board)) == "no verdict on the forward board yet\n"


def test_a_board_names_its_remarks():
    entries = (
        entry(label="v2"),
        entry(rank=None, author="bob", speedup=None, ci_low=None, quick=True, sandbox="weak"),
    )
    text = printed(leaderboard_table(Leaderboard(board="total", entries=entries, summaries=())))
    assert "ann__v2" in text
    assert "1.900x" in text
    assert "not timed, quick, sandbox weak" in text
    assert "by author" not in text


def test_several_problems_are_summed_up():
    board = Leaderboard(board="total", entries=(entry(), entry(problem="add")), summaries=(summary(tied=True),))
    device, header, line = printed(leaderboard_table(board)).splitlines()[-3:]
    assert device.rstrip() == "on NVIDIA H200"
    assert header.split()[:3] == ["rank", "author", "ranked"]
    assert line.split()[:-1] == ["=1", "ann", "1", "1", "2", "3.000x"]
    unranked = board.model_copy(update={"summaries": (summary(rank=None, problems=0),)})
    assert printed(leaderboard_table(unranked)).split()[-5:] == ["-", "ann", "0", "1", "2"]
    assert "one without a ranked submission counts as 1.0x" in printed(leaderboard_table(board))


def test_each_device_has_a_table_of_its_own():
    entries = (entry(), entry(author="bob"), entry(device_name="NVIDIA H100"))
    board = Leaderboard(board="total", entries=entries, summaries=())
    lines = [line.split() for line in printed(leaderboard_table(board)).splitlines()]
    assert [line[:5] for line in lines if line[0] == "total"] == [
        ["total", "board", "on", "NVIDIA", "H200,"],
        ["total", "board", "on", "NVIDIA", "H100,"],
    ]
    assert [line[:3] for line in lines if line[0] == "1"] == [["1", "scale", name] for name in ("ann", "bob", "ann")]
    assert not any("device" in line for line in lines)


@pytest.mark.parametrize("form", [lambda board: printed(leaderboard_table(board)), leaderboard_markdown])
@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"left_out": 2}, "2 submissions left out, labelled wraps_reference; --all ranks copies of the reference too"),
        ({"left_out": 1, "labels": LabelChoice(without=("cuda_graph",))}, "1 submission left out, labelled cuda_graph"),
    ],
)
@pytest.mark.parametrize("entries", [(), (entry(),)])
def test_what_was_left_out_for_its_labels_is_said(form, fields, line, entries):
    board = Leaderboard(board="total", entries=entries, summaries=(summary(),), **fields)
    assert line in form(board).replace("\\", "")
    assert "left out" not in form(board.model_copy(update={"left_out": 0}))


def test_ties_and_the_roofline_bound_are_shown():
    entries = (
        entry(tied=True, share_of_bound=0.5),
        entry(author="bob", tied=True, labels=("vendor_library",)),
        entry(author="eve", rank=None, speedup=90.0, ci_low=80.0, share_of_bound=1.4),
    )
    lines = printed(leaderboard_table(Leaderboard(board="total", entries=entries, summaries=()))).splitlines()
    assert "% of roofline" in lines[1]
    assert lines[2].split()[:3] == ["=1", "scale", "ann"]
    assert "50%" in lines[2]
    assert "vendor_library" in lines[3]
    assert lines[4].startswith("-")
    assert "above 110% of the roofline bound, not ranked" in lines[4]


def test_pass_at_k_is_shown_for_one_problem_too():
    figures = summary(fast_p={"0": 1.0, "1": 0.5}, pass_at_k={"1": 0.25, "10": None})
    lines = printed(
        leaderboard_table(Leaderboard(board="total", entries=(entry(),), summaries=(figures,)))
    ).splitlines()
    assert [*lines[-2].split()[-4:]] == ["fast_0", "fast_1", "pass@1", "pass@10"]
    assert lines[-1].split()[-3:] == ["100%", "50%", "25%"]


def test_markdown_keeps_names_in_their_cells():
    hostile = entry(author="a|b\n<img src=x>", ci_high=2.1)
    board = Leaderboard(board="total", entries=(hostile,), summaries=(summary(author="a|b"),))
    lines = leaderboard_markdown(board).splitlines()
    assert lines[0] == "| rank | problem | author | device | speedup | 95% interval | status | remarks |"
    assert lines[2] == (r"| 1 | scale | a\|b \<img src=x\> | NVIDIA H200 | 2.000x | 1.900 to 2.100 | correct |  |")
    assert lines[8].startswith(r"| 1 | a\|b | NVIDIA H200 | 1 | 1 | 2 | 3.000x | 2.900x |")


def test_a_name_cannot_forge_a_line():
    forged = entry(author="ann\n2     scale    eve", problem="scale\u2028x")
    lines = printed(leaderboard_table(Leaderboard(board="total", entries=(forged,), summaries=()))).splitlines()
    assert len(lines) == 3
    assert r"ann\n2     scale    eve" in lines[2]


def test_csv_of_a_board_has_no_formulas():
    board = Leaderboard(board="total", entries=(entry(author="=1+1", ci_low=-1.5),), summaries=())
    (row,) = csv.DictReader(io.StringIO(leaderboard_csv(board)))
    assert (row["author"], row["ci_low"]) == ("'=1+1", "-1.5")


def test_a_board_as_csv_has_a_header_and_empty_cells_for_absent():
    board = Leaderboard(board="total", entries=(entry(author='a "b", c'), entry(rank=None)), summaries=())
    first, second = csv.DictReader(leaderboard_csv(board).splitlines())
    assert list(first) == list(Entry.model_fields)
    assert first["author"] == 'a "b", c'
    assert (second["rank"], second["label"]) == ("", "")


def test_a_board_as_json_comes_back_equal():
    board = Leaderboard(board="total", entries=(entry(),), summaries=())
    assert Leaderboard.model_validate_json(leaderboard_json(board)) == board
