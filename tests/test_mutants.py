"""The mutation test itself: which mutants count, that the grader kills them, and that originals are right."""

import pytest
import torch

from fuzz.mutants import campaign
from fuzz.mutants.corpus import entries
from fuzz.mutants.edits import mutants
from fuzz.mutants.effect import Original
from fuzz.mutants.summary import summary

KNOWN = entries()


@pytest.fixture(scope="module", autouse=True)
def _memory_is_filled():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def grader():
    with campaign.grading() as grader:
        yield grader


def mutant(problem, kind, before, after):
    """The only mutant of that description."""
    (found,) = [
        one
        for one in mutants(KNOWN[problem], frozenset([kind]))
        if one.before == before and one.after == after and one.part != "wrapper"
    ]
    return found


def test_problems_and_mutants_are_many():
    assert len(KNOWN) >= 40
    names = ("batch_norm_train", "linear_scan", "embedding_mean", "channel_shuffle_add", "huber")
    some = [mutants(KNOWN[name]) for name in names]
    assert min(map(len, some)) >= 100
    assert {one.kind for group in some for one in group} == set(campaign.KINDS)


@pytest.mark.parametrize(
    ("problem", "kind", "before", "after", "effect"),
    [
        ("scale_bias_relu", "comparison", "y > 0", "y >= 0", "real"),
        ("mish", "swapped_operands", "return (grad * inner, grad * 0.5)", "return (grad * 0.5, grad * inner)", "real"),
        ("hardswish", "comparison", "x <= -3.0", "x < -3.0", "equivalent"),
        ("softmax_scaled", "dropped_term", "z - z.amax(-1, keepdim=True)", "z", "unusual inputs"),
        ("softplus_beta", "comparison", "torch.where(z > 20.0, x, soft / 2.0)", "soft / 2.0", "rounding"),
        ("linear_relu", "transpose", "inner.t()", "inner", "raises"),
    ],
)
def test_effect(problem, kind, before, after, effect):
    measured = Original(KNOWN[problem]).measure(mutant(problem, kind, before, after).source)
    assert measured.verdict == effect, measured


def test_the_original_has_no_effect():
    original = Original(KNOWN["layer_norm"])
    assert original.measure(original.source).verdict == "equivalent"


FAULTS = [
    ("hardtanh_add", "sign", "-inner", "inner", "grad_scaled"),
    ("hardtanh_add", "returned_none", "inner", "None", "input_grad_none"),
    ("hardtanh_add", "comparison", "(z > -0.8) & (z < 1.2)", "z > -0.8", "grad_wrong"),
    ("hardtanh_add", "partial_write", "z.clamp(-0.8, 1.2)", "_last_row(z.clamp(-0.8, 1.2))", "output_wrong"),
]


def test_the_grader_kills_mutants_of_different_classes_and_accepts_the_original(grader):
    entry = KNOWN["hardtanh_add"]
    assert campaign.grade(grader, entry, entry.submission_source).status == "correct"
    original = Original(entry)
    findings = [campaign.examine(grader, entry, original, mutant(*fault[:4])) for fault in FAULTS]
    assert all(one.killed for one in findings)
    assert "false" not in {one.named for one in findings}
    assert [one.diagnoses[0][1] for one in findings] == [fault[4] for fault in FAULTS]
    assert "| all | 4 | 4 | 0 | 0 | 100.00% |" in summary(findings)


def test_a_survivor_is_reported(grader):
    entry = KNOWN["cumsum_decay"]
    wrong = [one for one in mutants(entry, frozenset(["constant"])) if one.part == "forward"]
    finding = campaign.examine(grader, entry, Original(entry), wrong[0])
    survivor = campaign.Finding(**{**vars(finding), "status": "correct", "diagnoses": ()})
    assert finding.killed
    assert survivor.survived
    assert "| all | 2 | 1 | 1 | 0 | 50.00% |" in summary([finding, survivor])
