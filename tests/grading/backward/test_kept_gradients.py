"""A gradient that was kept from an earlier forward, told from one that never follows an operand."""

from types import SimpleNamespace

import pytest
import torch

from grader.grading.backward import judge
from grader.grading.compare.expected import Expected
from grader.grading.compare.scaling import REDUCED_PRECISION


@pytest.mark.parametrize(("asserts", "found"), [(False, True), (True, False)])
def test_larger_noise_is_tried_unless_the_reference_asserts_a_range(monkeypatch, asserts, found):
    """Behind a ReLU, little noise changes no gradient. Where a range is asserted, more might end the process."""
    sizes = []
    right = torch.ones(4, dtype=torch.float64)

    def gradients(_oracle, relative, _substitute):
        sizes.append(relative)
        return {"x": Expected("x", (4,), torch.float32, right * (2 if relative == 1.0 else 1))}

    monkeypatch.setattr(judge, "with_moved", lambda _case, _operand, relative: relative)
    monkeypatch.setattr(judge.known_mistakes, "gradients", gradients)
    oracle = SimpleNamespace(traits=lambda _: SimpleNamespace(asserts=asserts))
    case = SimpleNamespace(gradients={"x": Expected("x", (4,), torch.float32, right)})
    assert judge._follows(oracle, case, "x", "x") is found
    assert max(sizes) == (REDUCED_PRECISION if asserts else 1.0)
