"""The reference solutions keep the speed that was recorded, as a ratio to the best mode of torch.compile."""

from pathlib import Path

import pytest

from benchmarks import solutions
from benchmarks.solutions import RECORDED, SOLUTIONS, figures, main, read, verdicts
from grader.verdict.stages import Baseline, FigureTiming, StageStatus, TimingResult
from tests import samples

KEPT = 0.95
"""Share of a recorded ratio that must be reached: several times the noise of the ranking figure (0.84%)."""
COMPARED = ("forward", "total")
KNOWN = read(RECORDED)
"""By problem; `python -m benchmarks.solutions --record` writes them."""


def lost(recorded, found):
    """What fell below KEPT of its recorded ratio, with both figures."""
    pairs = {name: (recorded[name].ratio, getattr(found.get(name), "ratio", None)) for name in recorded}
    return [
        f"{name}: {'not measured' if now is None else f'{now:.3f}x'} over torch.compile, recorded {then:.3f}x"
        for name, (then, now) in pairs.items()
        if name in COMPARED and then is not None and (now is None or now < KEPT * then)
    ]


def phase(candidate_ms, reference_ms):
    return FigureTiming(
        candidate_ms=candidate_ms,
        reference_ms=reference_ms,
        speedup=reference_ms / candidate_ms,
        ci_low=0.9 * reference_ms / candidate_ms,
        ci_high=5,
        bound_ms=0.5,
        rounds=9,
    )


def timing(candidate_ms, *, searched=True):
    baselines = (
        Baseline(name="eager", forward_ms=4, backward_ms=5, total_ms=8),
        Baseline(name="compile", forward_ms=3, backward_ms=4, total_ms=6),
        Baseline(name="compile_max_autotune", forward_ms=2, backward_ms=6, total_ms=7),
    )[: 3 if searched else 2]
    return TimingResult(
        status=StageStatus.PASSED,
        forward=phase(candidate_ms, 4),
        backward=phase(candidate_ms, 5),
        total=phase(2 * candidate_ms, 8),
        baselines=baselines,
    )


def test_ratio_is_to_the_faster_mode_of_each_phase():
    found = figures(timing(1.0))
    assert [found[name].compile_ms for name in ("forward", "backward", "total")] == [2, 4, 6]
    assert [found[name].ratio for name in ("forward", "backward", "total")] == pytest.approx([2, 4, 3])
    assert found["total"].low == pytest.approx(2.7)


def test_slower_solution_is_named_with_both_figures():
    recorded = figures(timing(1.0))
    assert lost(recorded, figures(timing(1.04))) == []
    assert lost(recorded, figures(timing(1.06))) == [
        "forward: 1.887x over torch.compile, recorded 2.000x",
        "total: 2.830x over torch.compile, recorded 3.000x",
    ]
    assert lost(recorded, {}) == [
        "forward: not measured over torch.compile, recorded 2.000x",
        "total: not measured over torch.compile, recorded 3.000x",
    ]


@pytest.fixture
def graded(monkeypatch, tmp_path):
    """Files that are "graded" at once, the calls of it, and the problems whose search is not over."""
    calls, unfinished = [], set()

    def verdicts(files, **_):
        for file in files:
            calls.append(file.stem)
            submission = samples.submission(problem_id=file.stem, source=file.read_text())
            yield samples.verdict(submission, timing=timing(1.0, searched=file.stem not in unfinished))

    monkeypatch.setattr(solutions, "verdicts", verdicts)
    files = [tmp_path / f"{name}.py" for name in ("one", "two")]
    for file in files:
        file.write_text(f"# {file.stem}\n")
    return files, calls, unfinished


def test_what_is_recorded_is_not_measured_again(graded, tmp_path, capsys):
    (one, two), calls, _ = graded
    kept = tmp_path / "recorded.json"
    assert main(["--device", "cpu", "--record", str(kept), str(one)]) == 0
    assert main(["--device", "cpu", "--record", str(kept), str(one), str(two)]) == 0
    assert calls == ["one", "two"]
    assert list(read(kept)) == ["one", "two"]
    assert read(kept)["one"].phases == figures(timing(1.0))
    two.write_text("# changed\n")
    assert main(["--device", "cpu", "--record", str(kept), str(one), str(two)]) == 0
    assert calls == ["one", "two", "two"]
    capsys.readouterr()
    assert main(["--device", "cpu", "--record", str(kept), "--seconds", "0", str(two)]) == 0
    assert "| `one` | 4.000, 2.000, 1.000 | 2.00x [1.80] | 5.000, 4.000, 1.000 |" in capsys.readouterr().out


def test_a_ratio_without_the_search_is_marked_and_measured_again(graded, tmp_path, capsys):
    (one, two), calls, unfinished = graded
    unfinished.add("one")
    kept = tmp_path / "recorded.json"
    assert main(["--record", str(kept), str(one), str(two)]) == 0
    printed = capsys.readouterr().out
    assert "| `one` | 4.000, 3.000, 1.000 | 3.00x [2.70]* |" in printed
    assert "| `two` | 4.000, 2.000, 1.000 | 2.00x [1.80] |" in printed
    assert "* over the default mode of torch.compile" in printed
    unfinished.clear()
    assert main(["--record", str(kept), str(one), str(two)]) == 0
    assert calls == ["one", "two", "one"]
    assert "* over the default" not in capsys.readouterr().out
    assert read(kept)["one"].searched


def test_no_problem_begins_that_would_end_too_late(graded, monkeypatch, capsys):
    (one, two), calls, _ = graded
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(solutions.time, "monotonic", lambda: next(clock))
    assert main(["--seconds", "19", str(one), str(two)]) == 0
    assert calls == ["one"]
    assert main(["--seconds", "20", str(one), str(two)]) == 0
    assert calls == ["one", "one", "two"]


def test_an_interrupted_run_prints_what_it_has(graded, monkeypatch, capsys):
    (one, two), _, _ = graded
    whole = solutions.verdicts

    def interrupted(files, **options):
        yield next(whole(files, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(solutions, "verdicts", interrupted)
    assert main([str(one), str(two)]) == 0
    assert capsys.readouterr().out.count("| `one` | 4.000") == 2


def test_problems_are_graded_in_the_order_of_their_names():
    chosen = solutions.in_order("rms_norm,group_norm_silu", [])
    assert [path.stem for path in chosen] == ["rms_norm", "group_norm_silu"]
    everything = solutions.in_order(None, [])
    assert everything[0].stem == solutions.FIRST[0]
    assert set(everything) == {Path(path) for path in SOLUTIONS.glob("*.py")}


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("problem", KNOWN)
def test_recorded_ratio_is_kept(problem):
    (verdict,) = verdicts([SOLUTIONS / f"{problem}.py"], device="cuda")
    assert verdict.timing is not None, verdict.status
    assert lost(KNOWN[problem].phases, figures(verdict.timing)) == []
