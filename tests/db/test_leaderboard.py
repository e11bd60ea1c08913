"""What counts on a board, and in which order."""

import pytest

from db import Store
from db.labels import EVERYTHING, LabelChoice
from db.leaderboard import leaderboard
from grader.verdict.models import NO_DEVICE, Device, Settings, Status
from grader.verdict.stages import Baseline
from tests import samples

GPU = samples.environment(Device.CUDA, "NVIDIA H200")


@pytest.fixture
def board(tmp_path):
    """Saves verdicts and reads boards."""
    with Store.open(tmp_path / "grader.db") as store, store.run([]) as run:

        class Board:
            def save(self, author, problem_id="scale", label=None, text="a", problem_text="p", sample=None, **verdict):
                submission = samples.submission(author, problem_id, label, source=text, sample=sample)
                problem = samples.problem(problem_id, source=problem_text)
                store.save(
                    samples.verdict(submission, problem_source=problem_text, **verdict), submission, problem, run
                )

            def entries(self, **query):
                return leaderboard(store, **query).entries

            def lines(self, **query):
                return [(entry.rank, entry.author, entry.speedup) for entry in self.entries(**query)]

            def summaries(self, **query):
                return leaderboard(store, **query).summaries

            def left_out(self, **query):
                return leaderboard(store, **query).left_out

        yield Board()


def test_an_empty_board(board):
    assert board.lines() == []
    assert board.summaries() == ()


def test_the_lower_end_of_the_interval_ranks(board):
    board.save("rough", timing=_timing(samples.phase(2.2, margin=0.8)))
    board.save("steady", timing=_timing(samples.phase(2.0, margin=0.95)))
    board.save("slow", timing=_timing(samples.phase(1.5, margin=0.95)))
    assert [entry.author for entry in board.entries()] == ["steady", "rough", "slow"]


def test_whom_nobody_can_tell_from_the_first_of_a_rank_shares_it(board):
    for author, low, high in (("a", 1.9, 2.1), ("b", 1.7, 1.95), ("c", 1.6, 1.85), ("d", 1.5, 3.0), ("e", 1.0, 1.4)):
        phase = samples.phase(2.0).model_copy(update={"ci_low": low, "ci_high": high})
        board.save(author, timing=_timing(phase))
    # c does not reach a, the first of rank 1; d reaches c, the first of the next rank.
    assert [(entry.rank, entry.tied, entry.author) for entry in board.entries()] == [
        (1, True, "a"),
        (1, True, "b"),
        (3, True, "c"),
        (3, True, "d"),
        (5, False, "e"),
    ]


def test_what_is_too_good_to_be_true_is_not_ranked(board):
    """Above 110% of the roofline bound; below, it is, and a mean takes it for the bound."""
    board.save("honest", timing=_timing(samples.phase(2.0, bound_ms=0.5)))
    board.save("review", timing=_timing(samples.phase(2.0, bound_ms=1.08)))
    board.save("liar", timing=_timing(samples.phase(50.0, bound_ms=1.2)))
    assert [(entry.rank, entry.author) for entry in board.entries()] == [(1, "honest"), (1, "review"), (None, "liar")]
    means = {one.author: one.geometric_mean_speedup for one in board.summaries()}
    assert means == pytest.approx({"honest": 2.0, "review": 2.0 / 1.08, "liar": 1.0})
    assert [one.rank for one in board.summaries() if one.author == "liar"] == [None]


def test_an_unbelievable_text_does_not_stand_before_an_honest_one_of_the_same_author(board):
    board.save("ann", text="liar", timing=_timing(samples.phase(50.0, bound_ms=1.2)))
    board.save("ann", text="honest", timing=_timing(samples.phase(2.0, bound_ms=0.5)))
    assert board.lines() == [(1, "ann", 2.0)]


def test_strict_float32_has_a_board_of_its_own(board):
    board.save("ann", total=4.0)
    board.save("ann", settings=Settings(device=Device.CPU, strict_fp32=True), total=2.0)
    assert board.lines() == [(1, "ann", 4.0)]
    assert board.lines(board="strict-fp32") == [(1, "ann", 2.0)]


def test_the_cpu_board_leaves_gpus_out(board):
    board.save("ann", total=2.0)
    board.save("bob", where=GPU, total=5.0)
    assert board.lines(board="cpu") == [(1, "ann", 2.0)]


def test_boards_by_label(board):
    board.save("ann", text="a", labels=("torch_fallback", "no_custom_kernel"), total=4.0)
    board.save("ann", text="b", labels=("vendor_library",), total=3.0)
    board.save("bob", text="c", total=2.0)
    assert board.lines(labels=LabelChoice.of(having=["no_custom_kernel"])) == [(1, "ann", 4.0)]
    assert board.lines(labels=LabelChoice.of(without=["no_custom_kernel"])) == [(1, "ann", 3.0), (2, "bob", 2.0)]
    assert board.lines(labels=LabelChoice.of(without=["no_custom_kernel", "vendor_library"])) == [(1, "bob", 2.0)]
    (entry,) = board.entries(labels=LabelChoice.of(having=["torch_fallback"]))
    assert entry.labels == ("torch_fallback", "no_custom_kernel")


def test_a_copy_of_the_reference_is_no_solution(board):
    board.save("ann", text="copy", labels=("wraps_reference",), total=4.0)
    board.save("ann", text="kernel", total=2.0)
    board.save("bob", text="copy", labels=("wraps_reference", "no_custom_kernel"), total=3.0)
    board.save("eve", text="wrong copy", labels=("wraps_reference",), status=Status.WRONG_OUTPUT)
    assert board.lines() == [(1, "ann", 2.0)]
    assert board.left_out() == 2
    everything = [(1, "ann", 4.0), (2, "bob", 3.0)]
    assert board.lines(labels=EVERYTHING) == everything
    assert board.left_out(labels=EVERYTHING) == 0
    assert board.lines(labels=LabelChoice.of(having=["wraps_reference"])) == everything


def test_fast_p_is_over_all_problems_of_the_board(board):
    board.save("bob", "elsewhere", status=Status.WRONG_OUTPUT)
    board.save("ann", "scale", total=1.2)
    board.save("ann", "add", total=0.6)
    board.save("ann", "untimed", timing=None)
    board.save("ann", "wrong", status=Status.MISSING_BACKWARD, total=9.0)
    summary = board.summaries()[0]
    assert (summary.problems, summary.tried, summary.of) == (2, 4, 5)
    assert summary.fast_p == {"0": 0.6, "0.5": 0.4, "0.8": 0.2, "1": 0.2, "1.5": 0.0, "2": 0.0}


def test_pass_at_k_counts_samples(board):
    for sample in range(4):
        right = sample == 3
        status = Status.CORRECT if right else Status.WRONG_OUTPUT
        board.save("ann", text=f"text {sample}", sample=sample, status=status)
        board.save("ann", "add", text=f"text {sample % 2}", sample=sample, status=Status.CORRECT)
    (summary,) = board.summaries(pass_at=(1, 2, 5))
    assert summary.pass_at_k == {"1": pytest.approx((1 / 4 + 1) / 2), "2": pytest.approx((1 / 2 + 1) / 2), "5": None}


def test_a_sample_that_is_graded_again_is_still_one_sample(board):
    board.save("ann", sample=0, status=Status.WRONG_OUTPUT)
    board.save("ann", sample=0)
    (summary,) = board.summaries(pass_at=(1, 2))
    assert summary.pass_at_k == {"1": 1.0, "2": None}


def test_only_correct_ones_are_on_the_total_board(board):
    board.save("right")
    for status in set(Status) - {Status.CORRECT}:
        board.save(status, status=status, total=9.0)
    assert board.lines() == [(1, "right", 2.0)]


def test_a_right_forward_is_enough_on_the_forward_board(board):
    board.save("whole", forward_speedup=2.0)
    board.save("forward_only", status=Status.MISSING_BACKWARD, forward_speedup=4.0)
    board.save("wrong", status=Status.WRONG_OUTPUT, forward_speedup=8.0)
    board.save("cheat", status=Status.INTEGRITY_VIOLATION, forward_speedup=9.0)
    assert board.lines(board="forward") == [(1, "forward_only", 4.0), (2, "whole", 2.0)]
    assert board.lines(board="total") == [(1, "whole", 2.0)]


def test_without_a_timing_there_is_no_rank(board):
    board.save("untimed", timing=None)
    board.save("timed", total=0.5)
    assert board.lines() == [(1, "timed", 0.5), (None, "untimed", None)]


def test_grading_again_until_luck_strikes_gains_nothing(board):
    board.save("ann", total=3.0)
    board.save("ann", total=2.0)
    assert board.lines() == [(1, "ann", 2.0)]


def test_a_later_failure_of_the_same_text_takes_it_off(board):
    board.save("ann", total=3.0)
    board.save("ann", status=Status.WRONG_OUTPUT)
    assert board.lines() == []


@pytest.mark.parametrize("status", [Status.GRADER_ERROR, Status.NOT_RUN])
def test_what_says_nothing_about_the_text_changes_nothing(board, status):
    board.save("ann", total=3.0)
    board.save("ann", status=status)
    assert board.lines() == [(1, "ann", 3.0)]


def test_a_machine_without_the_device_has_no_board(board):
    """CUDA that does not compile is judged without a GPU too, and says nothing of how fast anything is on one."""
    board.save("ann", total=3.0, where=GPU)
    absent = samples.environment(Device.CUDA, NO_DEVICE)
    board.save("ann", "add", status=Status.BUILD_ERROR, where=absent, forward=None, backward=None, timing=None)
    assert [(one.author, one.device_name, one.of) for one in board.summaries()] == [("ann", "NVIDIA H200", 1)]


def test_of_several_texts_and_samples_the_best_counts(board):
    board.save("ann", text="first", total=3.0)
    board.save("ann", text="second", total=2.0)
    board.save("bob", text="b", sample=0, total=1.5)
    board.save("bob", text="b", sample=1, total=1.0)
    assert board.lines() == [(1, "ann", 3.0), (2, "bob", 1.5)]


def test_labels_stand_side_by_side(board):
    board.save("ann", label="v1", total=3.0)
    board.save("ann", label="v2", total=2.0)
    assert [(entry.rank, entry.label) for entry in board.entries()] == [(1, "v1"), (2, "v2")]


def test_verdicts_on_an_older_text_of_the_problem_are_left_out(board):
    board.save("ann", problem_text="old", total=9.0)
    board.save("bob", problem_text="new", total=2.0)
    assert board.lines() == [(1, "bob", 2.0)]


def test_a_look_at_one_variant_is_not_ranked(board):
    board.save("ann", settings=Settings(device=Device.CPU, variant="small"), total=9.0)
    assert board.lines() == []


def test_each_device_is_a_board_of_its_own(board):
    board.save("ann", total=2.0)
    board.save("ann", where=GPU, total=5.0)
    board.save("bob", where=GPU, total=7.0)
    assert board.lines() == [(1, "ann", 2.0), (1, "bob", 7.0), (2, "ann", 5.0)]
    assert board.lines(device=Device.CPU) == [(1, "ann", 2.0)]


def test_each_model_of_gpu_is_a_board_of_its_own_wherever_it_is(board):
    other = GPU.model_copy(update={"device_name": "NVIDIA H100"})
    board.save("ann", where=GPU.model_copy(update={"host": "one", "device_id": "GPU-a"}), total=5.0)
    board.save("bob", where=GPU.model_copy(update={"host": "two", "device_id": "GPU-b"}), total=7.0)
    board.save("eve", where=other, total=6.0)
    assert board.lines() == [(1, "eve", 6.0), (1, "bob", 7.0), (2, "ann", 5.0)]


def test_each_problem_is_a_board_of_its_own(board):
    board.save("ann", "scale", total=2.0)
    board.save("bob", "add", total=3.0)
    assert board.lines() == [(1, "bob", 3.0), (1, "ann", 2.0)]
    assert board.lines(problem="scale") == [(1, "ann", 2.0)]


def test_authors_are_summed_up_by_the_geometric_mean(board):
    board.save("ann", "scale", total=2.0)
    board.save("ann", "scale", label="worse", total=0.1)
    board.save("ann", "add", total=8.0)
    board.save("bob", "add", total=9.0)
    first, second = board.summaries()
    assert (first.author, first.problems, first.of) == ("ann", 2, 2)
    assert first.geometric_mean_speedup == pytest.approx(4.0)
    assert first.geometric_mean_ci_low == pytest.approx(3.6)
    assert (second.author, second.problems, second.of) == ("bob", 1, 2)
    assert second.geometric_mean_speedup == pytest.approx(3.0)


def test_breadth_at_less_than_pytorchs_speed_does_not_win(board):
    """And on each device the problems of that device count."""
    for number in range(9):
        board.save("broad", f"problem {number}", total=0.66)
    board.save("fast", "problem 0", total=4.0)
    board.save("wrong", "problem 0", status=Status.WRONG_OUTPUT)
    board.save("broad", "problem 0", where=GPU, total=0.5)
    found = [(one.device_name, one.author, one.rank, one.geometric_mean_speedup) for one in board.summaries()]
    assert found == [
        ("NVIDIA H200", "broad", 1, pytest.approx(0.5)),
        ("a CPU", "fast", 1, pytest.approx(4.0 ** (1 / 9))),
        ("a CPU", "broad", 2, pytest.approx(0.66)),
        ("a CPU", "wrong", None, 1.0),
    ]


def test_authors_whose_means_cannot_be_told_apart_share_a_rank(board):
    for author, speedup in (("ann", 2.0), ("bob", 1.9), ("eve", 1.0)):
        board.save(author, total=speedup)
    assert [(one.author, one.rank, one.tied) for one in board.summaries()] == [
        ("ann", 1, True),
        ("bob", 1, True),
        ("eve", 3, False),
    ]


def _timing(total):
    return samples.TimingResult(status=samples.StageStatus.PASSED, variant="full", total=total)


# ----------------------------------------------------------------------------------------------- torch.compile


def baselines(compiled, autotuned, eager=3.0):
    named = (("eager", eager), ("compile", compiled), ("compile_max_autotune", autotuned))
    return tuple(Baseline(name=name, forward_ms=ms / 3, total_ms=ms) for name, ms in named)


def test_a_speedup_over_the_best_of_torch_compiles_modes(board):
    """On "add", torch.compile is half again as fast as eager; on "scale" nobody timed it."""
    timing = _timing(samples.phase(3.0, margin=0.9))
    board.save("ann", "add", timing=timing.model_copy(update={"baselines": baselines(2.5, 2.0)}))
    board.save("ann", "scale", timing=timing)
    add, scale = board.entries()
    assert (add.speedup, scale.speedup) == (3.0, 3.0)
    assert add.vs_compile == pytest.approx(2.0)
    assert scale.vs_compile is None


def test_a_board_against_torch_compile_ranks_and_averages_by_it(board):
    for author, speedup, compiled in (("ann", 3.0, 1.0), ("bob", 2.0, 2.7)):
        timing = _timing(samples.phase(speedup, margin=0.9))
        board.save(author, text=author, timing=timing.model_copy(update={"baselines": baselines(compiled, 2.9)}))
    board.save("eve", text="eve", timing=_timing(samples.phase(9.0)))
    assert [entry.author for entry in board.entries()] == ["eve", "ann", "bob"]
    bob, ann, eve = board.entries(against="compile")
    assert [(entry.author, entry.rank) for entry in (bob, ann, eve)] == [("bob", 1), ("ann", 2), ("eve", None)]
    assert (bob.speedup, bob.ci_low, ann.speedup) == pytest.approx((1.8, 1.62, 1.0))
    means = {one.author: one.geometric_mean_speedup for one in board.summaries(against="compile")}
    assert means == pytest.approx({"bob": 1.8, "ann": 1.0, "eve": 1.0})
