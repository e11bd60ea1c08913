"""One process constructs one model of a submission for each size."""

from grader.catalog.problems import find_problems
from grader.grading.forward.judge import judge_case
from grader.grading.resources import Resources
from grader.verdict.models import Device, Submission


def test_a_model_is_constructed_once_for_each_size():
    problem = find_problems().problem("conv2d_mul_leaky_relu_gelu")
    source = problem.source.replace("class Model(", "class ModelNew(")
    source = source.replace("super().__init__()", "super().__init__()\n        print('made', flush=True)")
    submission = Submission(author="ann", problem_id=problem.id, path="ann.py", source=source)
    with Resources() as shop, shop.candidate(submission, Device.CPU) as candidate:
        oracle = shop.oracle(problem, Device.CPU)
        small, odd = (oracle.case(variant) for variant in ("small", "odd"))
        for case in (small, odd, small, odd, odd):
            checks, diagnoses = judge_case(candidate, oracle, case)
            assert not diagnoses
            assert {check.status for check in checks} == {"passed"}
        assert candidate.worker.output().split() == ["made", "made"]
