"""What programs read."""

import json

from grader.report.json_csv import json_line
from grader.verdict.models import Verdict
from tests import samples


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
