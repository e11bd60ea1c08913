"""GPU kernels where there is no GPU: what can be compiled is compiled, and for the rest there is a reason."""

import pytest
import torch

from grader import Grader
from tests import expected as cases

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it is run, not only compiled")


@pytest.fixture(scope="module")
def grade(tmp_path_factory):
    problems = [cases.CASES / "problems"]
    with Grader(quick=True, build_cache=tmp_path_factory.mktemp("builds"), problems=problems) as grader:
        yield lambda source: next(grader.grade_many([("scale_silu", source)]))


def source(name):
    return (cases.CASES / name).read_text()


NOT_HERE = "; running it needs a CUDA device, and there is none here: grade it on a machine with one"
BOTH = "it compiles (silu, silu_backward)"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["right_autotune", "right_triton_op", "right_custom_op"])
def test_triton_kernels_are_compiled_forward_and_backward(grade, name):
    verdict = grade(source(f"language_triton/{name}.py"))
    assert verdict.diagnoses[0].message == BOTH + NOT_HERE
    assert verdict.build.kernels == ("silu", "silu_backward")


def test_a_triton_kernel_that_does_not_compile_is_a_compile_error(grade):
    verdict = grade(source("language_triton/forward_only.py").replace("tl.sigmoid(z)", "tl.sigmoid(w)"))
    assert verdict.status == "build_error", verdict.diagnoses
    assert "`silu` failed: error: " in verdict.diagnoses[0].message
    assert "w is not defined" in verdict.diagnoses[0].message


def test_what_ends_the_run_on_fake_tensors_is_said(grade):
    text = source("language_triton/forward_only.py")
    verdict = grade(text.replace("    y = torch", "    x.sum().item()\n    y = torch"))
    (diagnosis,) = verdict.diagnoses
    assert diagnosis.message.startswith("not all of it was compiled: DataDependentOutputException: "), diagnosis.message
    assert diagnosis.message.endswith(NOT_HERE)


def test_kernels_behind_a_size_that_depends_on_values_are_compiled(grade):
    chosen = "    x = x[(x[:, 0] != 0).nonzero()[:, 0]]\n"
    verdict = grade(source("language_triton/right.py").replace("    y = torch", f"{chosen}    y = torch", 1))
    assert verdict.diagnoses[0].message == BOTH + NOT_HERE


def test_kernels_of_nvrtc_are_compiled(grade):
    assert grade(source("language_nvrtc/right.py")).diagnoses[0].message == BOTH + NOT_HERE
    wrong = grade(source("language_nvrtc/forward_only.py").replace("expf(-z)", "expf(-w)"))
    assert wrong.status == "build_error", wrong.diagnoses
    assert 'identifier "w" is undefined' in wrong.diagnoses[0].message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@torch.compile\ndef f(x): return x.cuda()", "torch.compile compiles at the first call, on the GPU"),
        ("def f(x): return x.cuda()", "it has no code of its own to compile"),
        (
            "import nosuch\ndef f(x): return x.cuda()",
            "not all of it was compiled: importing it raises ModuleNotFound",
        ),
    ],
)
def test_what_cannot_be_compiled_has_a_reason(grade, text, said):
    verdict = grade(f"import torch\n{text}\nclass ModelNew(torch.nn.Module): ...\n")
    assert verdict.status == "not_run"
    assert verdict.diagnoses[0].message.startswith(said), verdict.diagnoses
