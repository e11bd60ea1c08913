"""A slow reference has one draw of each size; what later forwards overwrite is found all the same."""

import pytest

from grader.grading.oracle.oracle import Oracle
from tests import expected as cases


@pytest.mark.parametrize(("name", "codes"), [("fault_global", ["stale_saved_state"]), ("honest", [])])
def test_stale_state_is_found_with_one_draw(monkeypatch, name, codes):
    monkeypatch.setattr(Oracle, "is_slow", lambda oracle, case: True)
    path = cases.CASES / "backward_stale_saved_state" / f"{name}.py"
    with cases.graders(rounds=1) as graders:
        verdict = cases.grade(graders, path, {"problem": "scale_bias_relu", "device": "cpu"})
    assert [one.code for one in verdict.diagnoses if one.severity == "error"] == codes, verdict.diagnoses
