"""A slow reference has one draw of each size; what a single draw shows is found all the same."""

import pytest

from grader.grading.oracle.oracle import Oracle
from tests import expected as cases


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("backward_stale_saved_state/fault_global", ["stale_saved_state"]),
        ("backward_stale_saved_state/honest", []),
        ("backward_assumes_contiguous_grad_output/fault_storage", ["assumes_contiguous_grad_output"]),
        ("backward_assumes_contiguous_grad_output/fault_raises", ["assumes_contiguous_grad_output"]),
        ("backward_assumes_contiguous_grad_output/honest_cpp", []),
    ],
)
def test_one_draw_shows_it(monkeypatch, name, codes):
    monkeypatch.setattr(Oracle, "is_slow", lambda oracle, case: True)
    with cases.graders(rounds=1) as graders:
        verdict = cases.grade(graders, cases.CASES / f"{name}.py", {"problem": "scale_bias_relu", "device": "cpu"})
    assert [one.code for one in verdict.diagnoses if one.severity == "error"] == codes, verdict.diagnoses
