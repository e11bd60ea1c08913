"""Seeded faults and their honest twins: each is graded, and its verdict compared with the one that it must get."""

import itertools
import os

import pytest

from grader.grading import inspection
from grader.grading.backward.products import judge_product
from grader.grading.forward.probes import probe_codes, run_probes
from grader.verdict.models import Device
from tests import expected as cases

SEEDED = ("backward_*", "forward_*")
FOLDERS = (*SEEDED, "language_*", "cuda_graphs", "precision_*")
DRAWS = int(os.environ.get("GRADER_TEST_SEEDS", "10"))
"""Of each variant in the search for false rejects."""
DRAWN_DEEP = (
    "batched_matmul_bias_gelu", "causal_gqa_attention", "linear_recurrence", "depthwise_conv1d_silu", "group_norm_silu",
    "linear_cross_entropy", "scaled_masked_softmax", "swiglu_mlp",
)  # fmt: skip
"""Problems whose own Model only the deep tests draw anew: in bfloat16 each draw takes seconds."""


@pytest.fixture(scope="session")
def graders():
    """One round of timing, as nobody looks at it."""
    with cases.graders(rounds=1) as get:
        yield get


@pytest.mark.parametrize(("path", "expected"), cases.listed(*FOLDERS))
def test_case(graders, path, expected):
    cases.compare(cases.grade(graders, path, expected), expected)


def test_every_file_has_an_expected_verdict():
    assert {entry.values[0] for entry in cases.listed(*FOLDERS)} == cases.there(*FOLDERS)


def honest():
    """(problem, submission, variant): honest twins that need no compiler, and every shipped problem's own Model."""
    for entry in cases.listed(*SEEDED):
        path, expected = entry.values
        right = expected["status"] == "correct" and not expected["codes"]
        if right and expected["device"] == "cpu" and "load_inline" not in path.read_text():
            wanted = cases.problem(expected["problem"]), cases.submission(path, expected["problem"]), "full"
            yield pytest.param(*wanted, id=f"{path.parent.name}/{path.stem}", marks=pytest.mark.deep)
    for path in sorted(cases.SHIPPED.glob("*.py")):
        itself = cases.submission(path, path.stem)
        itself = itself.model_copy(update={"source": itself.source.replace("class Model(", "class ModelNew(")})
        for variant in ("small", "odd", "batch1"):
            marks = [] if variant == "odd" and path.stem not in DRAWN_DEEP else [pytest.mark.deep]
            yield pytest.param(cases.problem(path.stem), itself, variant, id=f"{path.stem}/{variant}", marks=marks)


def judge_draws(resources, problem, submission, variant):
    """Each case with the errors of its gradients and probes, over many draws of a variant."""
    oracle = resources.oracle(problem, Device.CPU)
    modes = (True, False) if oracle.models.modes_differ(variant) else (True,)
    constructor = oracle.models.constructed_under
    with resources.candidate(submission, Device.CPU, reference_constructor=constructor) as candidate:
        for training, draw in itertools.product(modes, range(DRAWS)):
            case = oracle.case(variant, training=training, draw=draw)
            diagnoses = [
                *judge_product(candidate, oracle, case).diagnoses,
                *run_probes(candidate, oracle, [case], probe_codes()),
            ]
            both = (False, bool(case.wrt))
            bounds = [inspection.judge_bounds(candidate, case, backward=back, seconds=20) for back in both]
            diagnoses += [diagnosis for diagnosis in bounds if diagnosis is not None]
            yield case, [diagnosis for diagnosis in diagnoses if diagnosis.severity == "error"]
    oracle.cases.forget(variant)


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "submission", "variant"), list(honest()))
def test_no_false_reject(graders, problem, submission, variant):
    """Gradients and probes of honest submissions, over many draws of inputs, parameters and grad_outputs."""
    judged = judge_draws(graders("cpu").resources, problem, submission, variant)
    assert [f"{case.name}, {case.seed}: {d.message}" for case, diagnoses in judged for d in diagnoses] == []
