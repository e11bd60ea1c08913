"""Boards that take labels in or out, held against a slow computation over all verdicts."""

import random
from collections import defaultdict

import pytest
from sqlalchemy import text

from db import Store
from db.bound import MAX_SHARE_OF_BOUND
from db.labels import EVERYTHING, SOLUTIONS, LabelChoice
from db.leaderboard import leaderboard
from db.metrics import pass_at_k
from db.rows import counted, read_rows
from grader.verdict.models import Device, Settings, Status
from tests import samples
from tests.db.anew import make_standings_anew

GPU = samples.environment(Device.CUDA, "NVIDIA H200")
LABEL_SETS = [
    (),
    ("reduced_precision",),
    ("wraps_reference", "no_custom_kernel"),
    ("no_custom_kernel",),
    ("torch_fallback",),
    ("torch_fallback", "vendor_library"),
]
STATUSES = [*[Status.CORRECT] * 5, *[Status.MISSING_BACKWARD] * 2, Status.WRONG_OUTPUT, Status.NOT_RUN]
FILTERS = [
    EVERYTHING,
    SOLUTIONS,
    LabelChoice.of(without=["no_custom_kernel", "torch_fallback"]),
    LabelChoice.of(having=["torch_fallback"]),
    LabelChoice.of(having=["torch_fallback", "vendor_library"]),
    LabelChoice.of(having=["torch_fallback"], without=["vendor_library"]),
    LabelChoice.of(having=["wraps_reference"]),
    LabelChoice.of(having=["cuda_graph"]),
]


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "grader.db") as store:
        yield store


def save(store, author="ann", problem_id="scale", label=None, text="a", problem_text="p", sample=None, **verdict):
    submission = samples.submission(author, problem_id, label, source=text, sample=sample)
    problem = samples.problem(problem_id, source=problem_text)
    with store.run([]) as run:
        return store.save(samples.verdict(submission, problem_source=problem_text, **verdict), submission, problem, run)


def lines(store, **query):
    return [(entry.author, entry.speedup, entry.labels) for entry in leaderboard(store, **query).entries]


def test_a_later_grading_with_other_labels_supersedes(store):
    save(store, total=3.0)
    save(store, total=3.0, labels=("no_custom_kernel",))
    assert lines(store, labels=LabelChoice.of(without=["no_custom_kernel"])) == []
    save(store, total=2.0)
    assert lines(store, labels=LabelChoice.of(without=["no_custom_kernel"])) == [("ann", 2.0, ())]
    assert lines(store, labels=LabelChoice.of(having=["no_custom_kernel"])) == []


def test_pass_at_k_is_over_the_samples_that_are_taken(store):
    for sample, status, labels in (
        (0, Status.CORRECT, ()),
        (1, Status.CORRECT, ("vendor_library",)),
        (4, Status.WRONG_OUTPUT, ("vendor_library",)),
        (2, Status.WRONG_OUTPUT, ("no_custom_kernel",)),
        (3, Status.CORRECT, ("no_custom_kernel",)),
    ):
        save(store, sample=sample, status=status, labels=labels)
    (summary,) = leaderboard(store, labels=LabelChoice.of(without=["no_custom_kernel"]), pass_at=(1, 2, 4)).summaries
    assert summary.pass_at_k == {"1": pytest.approx(2 / 3), "2": 1.0, "4": None}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 8))])
def test_a_board_is_what_its_verdicts_say(store, seed):
    verdicts = drawn(store, random.Random(seed))
    for board in ("total", "forward", "strict-fp32", "cpu"):
        for labels in FILTERS:
            entries, pass_at_1, tried = expected(verdicts, board, labels)
            found = leaderboard(store, board=board, pass_at=(1,), labels=labels)
            assert {entry.verdict_id for entry in found.entries} == entries, (board, labels)
            assert {(one.author, one.device_name): one.tried for one in found.summaries} == tried
            chances = {(one.author, one.device_name): one.pass_at_k["1"] for one in found.summaries}
            assert chances == pytest.approx(pass_at_1), (board, labels)
            assert found.left_out == left_out(verdicts, board, labels), (board, labels)
    # Pages and diffs count the same.
    on_boards = {one.verdict_id for board in ("total", "strict-fp32") for one in on_board(verdicts, board)}
    assert {row.id for row in counted(read_rows(store)) if row.status is not Status.NOT_RUN} == on_boards


@pytest.mark.parametrize(
    "says_nothing",
    [
        {"status": Status.NOT_RUN},
        {"status": Status.GRADER_ERROR},
        {"settings": Settings(device=Device.CPU, variant="small")},
    ],
)
def test_a_problem_s_new_text_counts_once_something_is_graded_on_it(store, says_nothing):
    first = save(store, problem_text="old", total=3.0)
    save(store, problem_text="new", **says_nothing)
    assert [row.id for row in counted(read_rows(store))] == [first.verdict_id]
    assert lines(store) == [("ann", 3.0, ())]
    second = save(store, problem_text="new", total=2.0)
    assert [row.id for row in counted(read_rows(store))] == [second.verdict_id]
    assert lines(store) == [("ann", 2.0, ())]


def test_what_was_never_run_is_shown_on_the_newest_text(store):
    save(store, problem_text="old", status=Status.NOT_RUN)
    newest = save(store, problem_text="new", status=Status.NOT_RUN)
    assert [row.id for row in counted(read_rows(store))] == [newest.verdict_id]


def test_standings_are_kept_up_as_they_would_be_made_anew(store):
    drawn(store, random.Random(5))
    with store.writing() as session:
        kept = standings(session)
        make_standings_anew(session.connection())
        assert kept == standings(session)


def standings(session):
    """Those of the store with their parts, without the ids that either is known by."""
    rows = session.execute(text("select p.*, s.* from standings_by_labels p join standings s on s.id = standing_id"))
    return {(*row[1:9], *row[10:]) for row in rows}


def drawn(store, draw):
    """Verdicts on few texts, so that many are graded again."""
    return [
        save(
            store,
            author=draw.choice(["ann", "bob"]),
            problem_id=(problem_id := draw.choice(["scale", "add"])),
            label=draw.choice([None, "v1"]),
            text=draw.choice("abc"),
            problem_text=problem_id + draw.choice(["old", *["new"] * 5]),
            sample=draw.choice([None, 0, 1]),
            status=draw.choice(STATUSES),
            where=(where := draw.choice([samples.environment(), GPU])),
            settings=Settings(
                device=where.device,
                strict_fp32=draw.random() < 0.2,
                variant="small" if draw.random() < 0.1 else None,
            ),
            labels=draw.choice(LABEL_SETS),
            timing=timing(draw),
        )
        for _ in range(150)
    ]


def timing(draw):
    def phase():
        return samples.phase(draw.choice([0.5, 1.0, 2.0, 3.0]), bound_ms=draw.choice([None, 0.5, 1.05, 1.2]))

    passed = samples.StageStatus.PASSED
    return draw.choice(
        [None, *[samples.TimingResult(status=passed, variant="full", forward=phase(), total=phase())] * 4]
    )


def on_board(verdicts, board):
    """The newest verdict for each source that the board has a place for, whatever its labels and its status."""
    newest, newest_text = {}, {}
    for one in verdicts:
        if one.settings.variant is None and one.status not in (Status.GRADER_ERROR, Status.NOT_RUN):
            newest[key(one), one.sample, one.source_hash] = one
            newest_text[one.problem] = one.problem_hash
    for one in newest.values():
        strict = one.settings.strict_fp32 == (board == "strict-fp32")
        where = board != "cpu" or one.device is Device.CPU
        if strict and where and one.problem_hash == newest_text[one.problem]:
            yield one


def left_out(verdicts, board, labels):
    """How many of them have a label that is left out, and those that are asked for."""
    return sum(
        right(one, board) and set(labels.having) <= set(one.labels) and bool(set(labels.without) & set(one.labels))
        for one in on_board(verdicts, board)
    )


def expected(verdicts, board, labels):
    """(ids of the entries, pass@1, problems tried): by author and device."""
    of_key, counts = defaultdict(list), defaultdict(list)
    for one in on_board(verdicts, board):
        if set(labels.having) <= set(one.labels) and not set(labels.without) & set(one.labels):
            counts[one.author, one.environment.device_name, one.problem].append(right(one, board))
            if right(one, board):
                of_key[key(one)].append(one)
    chances = defaultdict(list)
    for (author, device_name, _), found in counts.items():
        chances[author, device_name].append(pass_at_k(len(found), sum(found), 1))
    return (
        {min(ones, key=lambda one: order(one, board)).verdict_id for ones in of_key.values()},
        {who: sum(values) / len(values) for who, values in chances.items()},
        {who: len(values) for who, values in chances.items()},
    )


def key(one):
    where = one.environment.device_name
    return one.problem, one.problem_hash, where, one.author, one.label, one.settings.strict_fp32


def right(one, board):
    if board == "forward":
        return one.status in (Status.CORRECT, Status.MISSING_BACKWARD)
    return one.status is Status.CORRECT


def order(one, board):
    phase = one.timing and (one.timing.forward if board == "forward" else one.timing.total)
    if not phase:
        return False, True, 0.0, one.verdict_id
    beyond = phase.bound_ms is not None and phase.speedup > MAX_SHARE_OF_BOUND * phase.reference_ms / phase.bound_ms
    return beyond, False, -phase.ci_low, one.verdict_id
