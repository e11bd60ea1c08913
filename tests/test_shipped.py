"""Shipped reference solutions and submissions get their expected verdicts."""

import json
from pathlib import Path

import pytest
import torch

from grader.catalog.problems import find_problems
from grader.catalog.submissions import find_submissions
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Status

ROOT = Path(__file__).parents[1]
EXPECTED = json.loads((ROOT / "submissions" / "EXPECTED.json").read_text())
CONVOLUTIONS = ("conv2d_mul_leaky_relu_gelu", "conv_transpose3d_bias_residual_mul_residual")
SOLUTIONS = sorted((ROOT / "reference_solutions").glob("*.py"))
GIB = 2**30
MOST_DEVICE_BYTES = 27 * GIB
"""Of all processes up to the end of the backward.

`conv2d_mul_leaky_relu_gelu` takes 22 to 26 GiB on an H200: 12 in the backward of the reference or of the solution, each
with cuDNN's workspaces, and 10 in the grader, for five tensors of a GiB and the memory that it shares.
"""
DEEP = (
    "magpie/conv2d_mul_leaky_relu_gelu__cpu_erf.py",
    "osprey/conv_transpose3d_leaky_relu_mul_leaky_relu_max__cpu_forward_only.py",
    "plover/conv2d_mul_leaky_relu_gelu.py",
    "plover/conv2d_mul_leaky_relu_gelu__cpu_repaired.py",
    "plover/conv2d_mul_leaky_relu_gelu__cpu_undefined_macro.py",
    "wagtail/conv_transpose3d_bias_residual_mul_residual.py",
)
"""Files that only the deep tests build without a GPU: others get the same verdict in the same way."""


@pytest.fixture(scope="session")
def graders():
    started = {}

    def get(device):
        if device not in started:
            started[device] = Pipeline(GraderOptions(device=device, quick=True))
        return started[device]

    yield get
    for grader in started.values():
        grader.close()


@pytest.fixture(scope="session")
def catalog():
    return find_problems()


def grade(grader, catalog, path):
    (submission,) = find_submissions([path], catalog).submissions
    return grader.grade(grader.request(catalog.problem(submission.problem_id), submission))


def story(verdict):
    """The verdict in words, for a failed assertion."""
    return "\n".join(
        [f"{verdict.submission} is {verdict.status}"] + [f"  {d.code}: {d.message}" for d in verdict.diagnoses]
    )


def without_a_gpu(entry):
    """Whether tests on a machine without a GPU take this entry: CPU files, and two CUDA files to compile."""
    return entry["device"] == "cpu" or entry["file"] in (
        "plover/conv2d_mul_leaky_relu_gelu.py",
        "wagtail/conv_transpose3d_bias_residual_mul_residual.py",
    )


def entries():
    for entry in EXPECTED:
        marks = [pytest.mark.slow]
        if entry["device"] == "cuda":
            marks.append(pytest.mark.nvcc if without_a_gpu(entry) else pytest.mark.gpu)
        if entry["file"] in DEEP and not torch.cuda.is_available():
            marks.append(pytest.mark.deep)
        yield pytest.param(entry, id=f"{entry['file'].removesuffix('.py')}-{entry['device']}", marks=marks)


@pytest.mark.parametrize("entry", list(entries()))
def test_submission(graders, catalog, entry):
    device = "cpu" if entry["device"] == "cpu" else "auto"
    verdict = grade(graders(device), catalog, ROOT / "submissions" / entry["file"])
    expected = entry["status"]
    if entry["device"] == "cuda" and not torch.cuda.is_available() and expected != "build_error":
        expected = "not_run"
    assert verdict.status == expected, story(verdict)
    if expected != "not_run":
        codes = [d.code for d in verdict.diagnoses]
        assert [code for code in entry["codes"] if code not in codes] == [], story(verdict)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted((ROOT / "reference_solutions" / "cpu").glob("*.py")), ids=lambda path: path.stem
)
def test_cpu_twin(graders, catalog, path):
    verdict = grade(graders("cpu"), catalog, path)
    assert verdict.status is Status.CORRECT, story(verdict)


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU they are run, not only compiled")
@pytest.mark.parametrize(
    "problem",
    [
        "conv_transpose3d_leaky_relu_mul_leaky_relu_max",
        *(pytest.param(problem, marks=pytest.mark.deep) for problem in CONVOLUTIONS),
    ],
)
def test_cuda_solution_compiles(graders, catalog, problem):
    verdict = grade(graders("auto"), catalog, ROOT / "reference_solutions" / f"{problem}.py")
    assert verdict.status is Status.NOT_RUN, story(verdict)
    assert verdict.build is not None
    assert verdict.build.extensions, "nothing was compiled"


@pytest.fixture(scope="session")
def solved(graders, catalog):
    """The verdict of each solution; compiled ahead, on all cores."""
    grader, found = graders("cuda"), {}
    requests = [
        grader.request(catalog.problem(submission.problem_id), submission)
        for submission in find_submissions(SOLUTIONS, catalog).submissions
    ]
    for request, verdict in zip(requests, grader.grade_many(requests), strict=True):
        found[request.problem.id] = verdict
    return found


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.alone  # the memory of the device is that of all processes there
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_cuda_solution(solved, path):
    verdict = solved[path.stem]
    assert verdict.status is Status.CORRECT, story(verdict)
    assert verdict.backward is not None
    peak = verdict.backward.peak_device_bytes or verdict.peak_device_bytes  # of one that has no backward
    assert peak is not None
    assert peak <= MOST_DEVICE_BYTES, f"{peak / GIB:.1f} GiB of device memory"
