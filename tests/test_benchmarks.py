"""Benchmarks pass code to child processes as text, which the type checker does not see."""

import importlib
import json
import pkgutil
import queue
import time
from argparse import Namespace
from pathlib import Path

import pytest

import benchmarks
from benchmarks import precisions, shared_gpu
from benchmarks.build import build
from benchmarks.deadline import Late, deadline
from benchmarks.kernelbench_page import page
from benchmarks.kernelbench_rows import known, merged, rows, table
from grader import Problem
from grader.verdict.models import Device, Status
from tests import samples


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(benchmarks.__path__)])
def test_every_benchmark_can_be_imported(name):
    importlib.import_module(f"benchmarks.{name}")


EXTENSION = '''
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <Python.h>

static PyModuleDef empty = {PyModuleDef_HEAD_INIT, "empty"};
extern "C" PyObject* PyInit_empty() { return PyModule_Create(&empty); }
"""
assert load_inline("empty", SOURCE, no_implicit_headers=True).__name__ == "empty"
'''


def test_a_cold_build_our_way_is_timed(tmp_path):
    (tmp_path / "empty.py").write_text(EXTENSION)
    measured = build("ours", tmp_path / "empty.py")
    assert measured["builds"] == 1
    assert measured["wall"] > 0
    assert measured["cpu"] > 0


def row(name, **changes):
    right = {"forward": ["same", 1.0, 0.998, 1.002]}
    usual = {"id": name, "level": "level1", "s": 2.0, "host_gib": 1.0, "device_gib": 8.0, "status": "correct"}
    usual |= {"machine": "GPU", "version": "1", "date": "2026-01-01", "codes": [], "messages": [], "figures": right}
    usual |= {"stages": {"timing": 1.0}, "jobs": {"reference_jobs": [9, 0.5]}, "commit": "new"}
    return {**usual, **changes}


def test_the_page_names_every_problem_that_is_not_as_it_should_be():
    text = "\n".join(
        page(
            [
                row("1_Right"),
                row("2_Wrong", status="wrong_output", codes=["output_wrong"], messages=["off by 1 | 2"]),
                row("3_Partly", codes=["checks_left_out"], messages=["cannot be differentiated here"]),
                row("4_Rows", codes=["checks_left_out"], messages=["everything else on the first 8 rows"]),
                row("5_Fast", figures={"total": ["faster", 1.07, 1.06, 1.08]}),
                row("6_Large", device_gib=100.0),
            ]
        )
    )
    assert "| problems | 6 of 250 |" in text
    assert "| verdicts | 5 `correct`, 1 `wrong_output` |" in text
    assert "| level1/2_Wrong | `wrong_output`: off by 1 / 2 |" in text
    assert "| level1/3_Partly | cannot be differentiated here |" in text
    assert "| level1/5_Fast, total | faster, 1.070 [1.060, 1.080] |" in text
    assert "| level1/6_Large | 100 GiB |" in text
    assert "1_Right" not in text
    assert "4_Rows" not in text


def test_several_runs_make_one_table_and_the_first_row_of_a_commit_counts(tmp_path):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    early = [row("1_A", status="late", commit="old"), row("2_B", commit="old"), row("3_C", status="wrong_output")]
    one.write_text("\n".join(map(json.dumps, early)) + '\n{"id": "9_cut')
    two.write_text("\n".join(map(json.dumps, [row("1_A", s=7.0), row("3_C")])))
    found = rows([one, two, tmp_path / "none.jsonl"])
    assert known(found, "new") == {"level1/1_A", "level1/3_C"}
    assert known(found, None) == {"level1/1_A", "level1/2_B", "level1/3_C"}
    text = "\n".join(table(merged(found, "new"), 250))
    assert "3 of 250 problems: {'correct': 2, 'wrong_output': 1}" in text
    assert "2 at new on GPU on 2026-01-01" in text
    assert "1 at old on GPU on 2026-01-01" in text
    assert "1_A 7.0, 2_B 2.0" in text
    assert "level1/3_C: wrong_output" in text


def test_what_takes_too_long_is_ended():
    with pytest.raises(Late), deadline(0.05):
        time.sleep(60)


def test_answers_in_half_precision_are_joined_by_mutant():
    """Each grader's answer is a row of its own, written as soon as it is there."""
    mutant = {"problem": "19_ReLU", "mutant": "scaled", "precision": "bf16"}
    one = {**mutant, "by": "ours", "status": "wrong_output", "forward": False, "why": "off by 0.6%"}
    for correct, shown in ((True, "DIFFERS: off by 0.6% | passed"), (False, "wrong_output  False"), (None, "None")):
        other = {**mutant, "by": "evaluator", "correct": correct, "why": "passed"}
        assert precisions.table([other, one]).splitlines()[1].endswith(shown)
    assert precisions.table([one]).splitlines()[1].endswith("wrong_output  None")


EVALUATOR = """
import json, os, sys, time
for line in sys.stdin:
    mutant = json.loads(line)["source"]
    if "detach" in mutant:
        print("no memory", file=sys.stderr)
        os._exit(1)
    time.sleep(60 if "1.05" in mutant else 0)
    print(json.dumps({"correct": "1.006" not in mutant, "why": "compared"}), flush=True)
"""


def test_an_evaluator_that_ends_or_is_late_is_replaced(monkeypatch, tmp_path):
    monkeypatch.setattr(precisions, "EVALUATE", EVALUATOR)
    source = "class Model:\n    pass\n"
    problem = Problem(id="1_A", path=Path("1_A.py"), source=source)
    waiting = queue.SimpleQueue()
    for mutant in ("detached", "reference", "wrong", "scaled"):
        waiting.put((problem, mutant))
    chosen = Namespace(checkout=tmp_path, each=5.0, precision="bf16")
    answers = precisions.ask_evaluator(waiting, chosen, lambda: 100.0)
    assert [(mutant, answer["correct"], answer["why"].strip()) for (_, mutant), answer in answers] == [
        ("detached", None, "the evaluator ended: no memory"),
        ("reference", True, "compared"),
        ("wrong", None, "no answer in time"),
        ("scaled", False, "compared"),
    ]


def test_what_says_nothing_of_a_forward_is_no_difference():
    """The evaluator beside the grader holds memory of the same GPU."""
    for status, forward in (("correct", True), ("wrong_output", False), ("out_of_memory", None)):
        assert precisions.ours(samples.verdict(status=Status(status)))["forward"] is forward


def test_other_statuses_or_codes_on_a_shared_gpu_are_named(monkeypatch, capsys, tmp_path):
    def grade(status):
        return lambda works, options, end: ((name, samples.verdict(status=Status(status[name]))) for name in works)

    one = dict.fromkeys(shared_gpu.ON_CPU.split(), "correct")
    first = next(iter(one))
    monkeypatch.setattr(shared_gpu, "by_one_grader", grade(one))
    monkeypatch.setattr(shared_gpu, "by_two_actors", grade({**one, first: "wrong_backward"}))
    noted = {}
    shared_gpu.compare_verdicts(Device.CPU, time.monotonic() + 60, noted.__setitem__)
    assert noted["compared"] == len(one)
    assert noted["differ"] == [first]
    assert f"1 differ ['{first}']" in capsys.readouterr().out


def test_the_submissions_for_a_shared_gpu_are_there():
    names = f"{shared_gpu.ON_GPU} {shared_gpu.BUILT_ON_CPU}".split()
    assert {shared_gpu.work(name)[1].path for name in names} == {str(shared_gpu.CASES / f"{name}.py") for name in names}
