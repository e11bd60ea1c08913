"""Grades submissions that cheat, and honest ones that a grader may wrongly reject, and compares the verdicts."""

import pytest
import torch

from grader.verdict.models import Status, TimeLimits
from tests import expected as cases

FOLDERS = ("cheat_*", "honest_*")
LIMITS = TimeLimits(build=120, construction=30, call=20)


@pytest.fixture(scope="module")
def graders():
    with cases.graders(rounds=2, limits=LIMITS) as get:
        yield get


@pytest.mark.parametrize(("path", "expected"), cases.listed(*FOLDERS))
def test_case(graders, path, expected):
    cases.compare(cases.grade(graders, path, expected), expected)


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it is run, not only compiled")
def test_a_toolkit_without_all_libraries_is_completed_from_torchs_packages(graders):
    """A toolkit may lack libraries; <ATen/cuda/CUDAContext.h> needs the headers of five."""
    path, expected = next(e.values for e in cases.listed("honest_cuda") if e.values[0].stem == "libraries")
    verdict = cases.grade(graders, path, expected | {"device": "auto"})
    assert verdict.status is Status.NOT_RUN, verdict.diagnoses
    assert verdict.build.extensions == ("libraries",)


def test_every_file_has_an_expected_verdict():
    assert {entry.values[0] for entry in cases.listed(*FOLDERS)} == cases.there(*FOLDERS)


def test_every_attack_names_its_surface_and_its_failure():
    for path in cases.there("cheat_*"):
        head = path.read_text().split('"""')[1]
        assert path.stem.startswith("honest") or ("Attack surface: " in head and "Why it fails: " in head), path
