"""Lines of JSONL as they arrive: authors take turns, a bounded number is read ahead, and none waits for more."""

import os
import threading
import tracemalloc
from pathlib import Path

from grader.cli import _lines
from grader.errors import Cancelled
from grader.report.progress import BatchProgress
from tests import samples


def arriving(path, read=None):
    def author_of(name, number, line):
        return samples.problem(), samples.submission(author=line.decode())

    for some in _lines.arriving(Path(path), read or author_of):
        for _, submission in some:
            yield submission.author


def test_one_author_s_flood_delays_another_s_line_by_one(tmp_path):
    (tmp_path / "lines.jsonl").write_text("ann\n" * 100 + "bob\nbob\n")
    found = list(arriving(tmp_path / "lines.jsonl"))
    assert found[:5] == ["ann", "bob", "ann", "bob", "ann"]
    assert sorted(found) == ["ann"] * 100 + ["bob"] * 2


def test_what_has_arrived_does_not_wait_for_more():
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "wb", buffering=0) as out, os.fdopen(ours, "rb") as there:
        lines = arriving(f"/proc/self/fd/{there.fileno()}")
        out.write(b"ann\nbob\n")
        assert [next(lines), next(lines)] == ["ann", "bob"]
        threading.Timer(0.1, out.write, [b"cid\n"]).start()
        assert next(lines) == "cid"


def test_a_long_stream_is_read_a_bounded_number_ahead_in_flat_memory():
    """With a slow reader behind it, a fast writer waits, and nothing grows."""
    ours, theirs = os.pipe()
    count, read = 60_000, [0]

    def write():
        with os.fdopen(theirs, "wb") as out:
            for number in range(count):
                out.write(b"author%d %s\n" % (number % 50, b"x" * 200))

    def reading(name, number, line):
        read[0] = number
        return pair[0], pair[1 + number % 50]

    pair = [samples.problem(), *(samples.submission(author=f"author{number}") for number in range(50))]
    threading.Thread(target=write, daemon=True).start()
    with os.fdopen(ours, "rb") as there:
        lines = arriving(f"/proc/self/fd/{there.fileno()}", reading)
        tracemalloc.start()
        try:
            peaks = []
            for taken, _ in enumerate(lines, 1):
                assert read[0] - taken <= _lines.MOST_AHEAD
                if taken % 20_000 == 0:
                    peaks.append(tracemalloc.get_traced_memory()[1])
                    tracemalloc.reset_peak()
        finally:
            tracemalloc.stop()
    assert taken == count
    assert peaks[-1] < peaks[0] + 100_000


def test_the_lines_of_files_are_counted_and_those_of_a_pipe_are_not(tmp_path):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text("{}\n\n  \n{}")
    two.write_text("{}\n")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert _lines.count_lines([]) == 0
    assert _lines.count_lines([one, two]) == 3
    assert _lines.count_lines([one, tmp_path / "pipe.jsonl"]) is None
    assert _lines.count_lines([Path("-")]) is None


def test_what_gets_no_verdict_is_not_left():
    with BatchProgress(total=4, as_json=False) as progress:
        assert progress.work().left == 4
        progress.show(samples.verdict())
        progress.drop(Cancelled("cancelled"))
        progress.refuse("line 3: no object")
        assert progress.work().left == 1
