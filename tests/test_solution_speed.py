"""The reference solutions keep the speed that was recorded, as a ratio to the best mode of torch.compile."""

import json

import pytest

from benchmarks.solutions import RECORDED, SOLUTIONS, measured, ratios
from grader.verdict.stages import Baseline, PhaseTiming, StageStatus, TimingResult

KEPT = 0.95
"""Share of a recorded ratio that must be reached: several times the noise of the ranking figure (0.84%)."""
RATIOS = json.loads(RECORDED.read_text())
"""By problem; `python -m benchmarks.solutions --record` writes them."""


def lost(recorded, found):
    """What fell below KEPT of its recorded ratio, with both figures."""
    return [
        f"{name}: {found[name].value:.3f}x the best of torch.compile, recorded {ratio:.3f}x"
        for name, ratio in recorded.items()
        if name not in found or found[name].value < KEPT * ratio
    ]


def phase(candidate_ms):
    return PhaseTiming(
        candidate_ms=candidate_ms,
        reference_ms=4,
        speedup=4 / candidate_ms,
        ci_low=3.9 / candidate_ms,
        ci_high=5,
        rounds=9,
    )


def timing(candidate_ms):
    baselines = (
        Baseline(name="eager", forward_ms=4, total_ms=9),
        Baseline(name="compile", forward_ms=3, total_ms=7),
        Baseline(name="compile_max_autotune", forward_ms=2, total_ms=8),
    )
    return TimingResult(
        status=StageStatus.PASSED, forward=phase(candidate_ms), total=phase(2 * candidate_ms), baselines=baselines
    )


def test_ratio_is_to_the_faster_mode_of_each_phase():
    found = ratios(timing(1.0))
    assert found["forward"].value == pytest.approx(2.0)
    assert found["total"].value == pytest.approx(3.5)
    assert found["total"].low == pytest.approx(3.5 * 3.9 / 4)


def test_slower_solution_is_named_with_both_figures():
    recorded = {"forward": 2.0, "total": 3.5}
    assert lost(recorded, ratios(timing(1.04))) == []
    assert lost(recorded, ratios(timing(1.06))) == [
        "forward: 1.887x the best of torch.compile, recorded 2.000x",
        "total: 3.302x the best of torch.compile, recorded 3.500x",
    ]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("problem", RATIOS)
def test_recorded_ratio_is_kept(problem):
    (verdict,) = measured([SOLUTIONS / f"{problem}.py"])
    assert verdict.timing is not None, verdict.status
    assert lost(RATIOS[problem], ratios(verdict.timing)) == []
