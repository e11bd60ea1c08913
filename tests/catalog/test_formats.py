"""Problem formats: what each declares, and GPU MODE's in particular, up to verdicts in the real sandbox."""

import ast
import sys

import pytest
import torch

from grader.catalog import formats
from grader.catalog.facts import facts
from grader.catalog.formats import FORMATS
from grader.catalog.formats import _gpumode_adapter as adapter
from grader.catalog.problem_module import load_problem
from grader.catalog.problems import find_problems
from grader.catalog.submissions import find_submissions
from grader.errors import ProblemError, UserError
from grader.grading.oracle.values import draw_inputs
from grader.verdict.models import Device, Status
from grader.verdict.stages import StageStatus
from tests import expected as cases
from tests import samples

FOLDER = cases.CASES / "problems_gpumode"
GPUMODE = FORMATS["gpumode"]

TASK = """\
lang: py
tests:
  - {size: 4, seed: 1}
benchmarks:
  - {size: 8, seed: 2}
"""
REFERENCE = """\
import torch
from task import input_t
from utils import make_match_reference

def ref_kernel(data: input_t):
    return data * 2

def generate_input(size, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(size, device="cuda", generator=generator)

check_implementation = make_match_reference(ref_kernel)
"""


@pytest.fixture(scope="module")
def catalog():
    return find_problems([FOLDER], with_shipped=False)


@pytest.fixture
def make(tmp_path):
    """Writes a problem folder and reads it."""

    def make(reference=REFERENCE, task=TASK, name="twice"):
        folder = tmp_path / "group" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "task.yml").write_text(task)
        (folder / "reference.py").write_text(reference)
        return find_problems([folder], with_shipped=False).problem(name)

    return make


def inputs(problem, variant="full", seed=0, device=Device.CPU):
    return draw_inputs(load_problem(problem).variants[variant], device, seed)[1]


# ---------------------------------------------------------------------------------------------------- the registry


def test_each_format_is_registered_under_its_name():
    assert {"gpumode", "kernelbench"} <= set(FORMATS)
    assert all(name == one.name for name, one in FORMATS.items())


def test_a_format_is_one_new_file(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text("class Toy:\n    name = 'toy'\n\nFORMAT = Toy()\n")
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    assert list(formats.declared()) == sorted([*FORMATS, "toy"])
    del sys.modules["grader.catalog.formats.toy"]


def test_a_kernelbench_problem_and_its_submissions_are_left_as_they_are():
    problem = find_problems().problem("conv2d_mul_leaky_relu_gelu")
    assert problem.format == "kernelbench"
    assert problem.source == problem.path.read_text()
    assert FORMATS["kernelbench"].worker_source(samples.SUBMISSION_SOURCE) == samples.SUBMISSION_SOURCE


# ------------------------------------------------------------------------------------------------- reading folders


def test_a_folder_is_one_problem(tmp_path, make):
    problem = make()
    folder = problem.path.parent
    for helper in ("task.py", "submission.py", "solutions/right.py"):
        (folder / helper).parent.mkdir(exist_ok=True)
        (folder / helper).write_text("def custom_kernel(data): ...")
    for beside in ("eval.py", "utils.py", "template.py"):
        (tmp_path / "group" / beside).write_text("x = 1")
    (tmp_path / "group" / "scale.py").write_text(samples.PROBLEM_SOURCE)
    catalog = find_problems([tmp_path], with_shipped=False)
    assert (set(catalog.problems), catalog.skipped) == ({"twice", "scale"}, ())
    for path in (folder / "task.yml", folder / "reference.py"):
        assert find_problems([path], with_shipped=False).problem("twice").source == problem.source


def test_two_groups_with_a_problem_of_one_name(tmp_path, make):
    make()
    other = tmp_path / "other" / "twice"
    other.mkdir(parents=True)
    (other / "task.yml").write_text(TASK)
    (other / "reference.py").write_text(REFERENCE)
    assert set(find_problems([tmp_path], with_shipped=False).problems) == {"group/twice", "other/twice"}


def test_tests_are_small_variants_and_the_largest_benchmark_is_full(catalog):
    module = load_problem(catalog.problem("scaled_add"))
    assert list(module.variants) == ["small", "test2", "cpu", "full"]
    shapes = {name: tuple(variant.make_inputs()[0].shape) for name, variant in module.variants.items()}
    assert shapes == {"small": (8, 4), "test2": (16, 33), "cpu": (64, 128), "full": (256, 1024)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"task": "tests: ["}, "task.yml is not valid YAML at line 1; correct it"),
        ({"task": "3"}, "task.yml is not a mapping; give it `tests` and `benchmarks`"),
        ({"task": TASK.replace("lang: py", "lang: cu")}, "task.yml: lang is 'cu'; only py is supported"),
        ({"task": TASK + "multi_gpu: true"}, "task.yml: multi_gpu is set; only problems for one GPU are supported"),
        ({"task": TASK.replace("benchmarks", "b")}, "task.yml has no list of mappings in benchmarks; add"),
        ({"reference": REFERENCE.replace("ref_kernel", "other")}, "reference.py has no ref_kernel"),
        ({"reference": REFERENCE + "Model = 3"}, "reference.py defines Model, which the grader adds; rename it"),
        ({"reference": REFERENCE.replace("make_match_reference", "magic")}, "reference.py imports magic from utils"),
        ({"reference": REFERENCE + "def ("}, "syntax error in reference.py at line 13: "),
        ({"reference": ""}, "reference.py: The file is empty"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(make, change, reason):
    with pytest.raises(UserError) as caught:
        make(**change)
    assert f"twice: {reason}" in str(caught.value)


# --------------------------------------------------------------------------------------------------------- inputs


def test_seeds_are_drawn_and_output_buffers_are_no_arguments(catalog):
    problem = catalog.problem("scaled_add")
    first, again, other = inputs(problem, seed=1), inputs(problem, seed=1), inputs(problem, seed=2)
    assert len(first) == 3
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert first[2]["data"]["tuple"][2] == {"buffer": [256, 1024], "dtype": "float32"}


def test_data_is_nested_as_it_was():
    a, b = torch.ones(2), torch.zeros(3, dtype=torch.int64)
    buffer = torch.empty(4, dtype=torch.float16)
    data = [(a, {"b": b, "again": a}), None, 2, "text", [True, 1.5], buffer]
    flat = adapter.flatten(data, [buffer])
    assert len(flat) == 3
    found = adapter.unflatten(flat)
    assert found[0][0] is a is found[0][1]["again"]
    assert found[0][1]["b"] is b
    assert found[1:5] == data[1:5]
    assert (found[5].shape, found[5].dtype) == (buffer.shape, torch.float16)
    wide = adapter.unflatten([a.double(), b, flat[2]])
    assert wide[5].dtype == torch.float64


def test_a_reference_may_compute_in_float64(make):
    problem = make(REFERENCE.replace("return data * 2", "return [data.double().cumsum(0), data.int()]"))
    model = load_problem(problem).model_class()
    tensor, layout = inputs(problem)
    assert [one.dtype for one in model(tensor, layout)] == [torch.float32, torch.int32]
    assert model(tensor.double(), layout)[0].dtype == torch.float64


@pytest.mark.parametrize("made", ["torch.empty(3).fill_(1)", "torch.empty(3).normal_()", "torch.zeros(3)"])
def test_a_tensor_that_was_written_is_an_argument(make, made):
    problem = make(REFERENCE.replace('torch.randn(size, device="cuda", generator=generator)', made))
    assert len(inputs(problem)) == 2


@pytest.mark.parametrize(
    "made",
    [
        'torch.randn(size, device="cuda:0")',
        'torch.randn(size, device=torch.device("cuda"))',
        "torch.randn(size).cuda()",
        'torch.randn(size).to("cuda")',
        'torch.randn(size).to(device="cuda", dtype=torch.float32)',
        'torch.nn.Linear(size, size).to("cuda").weight.detach()',
    ],
)
def test_cuda_means_the_chosen_device(make, made):
    problem = make(REFERENCE.replace('torch.randn(size, device="cuda", generator=generator)', made))
    assert inputs(problem)[0].device.type == "cpu"


def test_the_device_is_the_one_that_the_grader_chose(make):
    """The device of tensors without values stands for a GPU."""
    reference = REFERENCE.replace('torch.randn(size, device="cuda", generator=generator)', "torch.ones(size).cuda()")
    reference = reference.replace('torch.Generator(device="cuda").manual_seed(seed)', "torch.ones(size).device.type")
    problem = make(reference.replace("torch.ones(size).cuda()", 'torch.ones(size).cuda(), generator == "cpu"'))
    with torch.device("meta"):
        tensor, layout = load_problem(problem).variants["full"].make_inputs()
    assert tensor.device.type == "meta"
    assert layout["data"]["tuple"][1] is True


def test_generators_are_still_recognized(make):
    check = "    assert isinstance(generator, torch.Generator)\n"
    problem = make(REFERENCE.replace("    return torch.randn", f"{check}    return torch.randn"))
    assert len(inputs(problem)) == 2


def test_the_process_is_left_as_it_was(catalog):
    before = {name: sys.modules.get(name) for name in ("task", "utils")}
    generator = torch.Generator
    for problem in catalog.problems.values():
        inputs(problem)
    assert {name: sys.modules.get(name) for name in ("task", "utils")} == before
    assert torch.Generator is generator


def test_data_that_cannot_be_sent_is_named(make):
    problem = make(REFERENCE.replace("return torch.randn", "return object(), torch.randn"))
    with pytest.raises(ProblemError, match=r"twice/reference.py: get_inputs.*: a object cannot be sent"):
        inputs(problem)


def test_the_listing_says_forward_only(catalog):
    found = facts(catalog.problem("row_sums"))
    assert (found.forward, found.backward, found.variants) == (True, False, ("small", "cpu", "full"))


# ---------------------------------------------------------------------------------------------------- submissions


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("#!POPCORN leaderboard x\n1 / 0", 2),
        ("\n1 / 0", 2),
        ("import torch\n1 / 0", 2),
        ('"""Doc\nstring."""\n1 / 0', 3),
        ('"""é"""  # é\nfrom __future__ import annotations  # é\r\n1 / 0', 3),
        ("x = (1,\n  2)\n1 / 0", 3),
        ("def f():\n    pass\n1 / 0", 4),
        ("@staticmethod\ndef f():\n    pass\n1 / 0", 5),
        ("", None),
        ("# only a comment", None),
    ],
)
def test_lines_keep_their_numbers_where_the_syntax_allows(source, line):
    text = GPUMODE.worker_source(source)
    ast.parse(text)
    if line is not None:
        with pytest.raises(ZeroDivisionError) as caught:
            exec(compile(text, "kernel.py", "exec"), {"__name__": "kernel"})
        assert caught.traceback[-1].lineno + 1 == line
    for name in ("task", "utils"):
        sys.modules.pop(name, None)


EXPECTED = {
    "scaled_add__in_place": (Status.CORRECT, None),
    "scaled_add__wrong_scale": (Status.WRONG_OUTPUT, "output_wrong"),
    "scaled_add__unwritten": (Status.WRONG_OUTPUT, None),
    "scaled_add__no_kernel": (Status.INVALID_SUBMISSION, "no_model_new"),
    "row_sums__matmul": (Status.CORRECT, None),
    "row_sums__unweighted": (Status.WRONG_OUTPUT, "output_wrong"),
    "row_sums__overwrites": (Status.WRONG_OUTPUT, "inputs_modified"),
}


@pytest.fixture(scope="module")
def graders():
    with cases.graders(rounds=2) as get:
        yield get


def test_every_submission_has_an_expectation():
    assert {path.stem for path in cases.there("gpumode")} == set(EXPECTED)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", EXPECTED)
def test_submissions_are_graded_end_to_end(graders, catalog, name, device):
    path = cases.CASES / "gpumode" / f"{name}.py"
    (submission,) = find_submissions([path], catalog).submissions
    pipeline = graders(device)
    verdict = pipeline.grade(pipeline.request(catalog.problem(submission.problem_id), submission))
    status, code = EXPECTED[name]
    assert verdict.status is status, verdict.diagnoses
    assert code is None or code in [diagnosis.code for diagnosis in verdict.diagnoses]
    if status is Status.CORRECT:
        assert verdict.backward.status is StageStatus.SKIPPED
        assert verdict.timing.forward.speedup > 0
        assert verdict.timing.total is None
    if name.endswith("no_kernel"):
        assert "the file defines no function custom_kernel" in verdict.diagnoses[0].message


def test_the_error_of_a_submission_has_its_line(graders, catalog):
    problem = catalog.problem("scaled_add")
    source = "import torch\n\n\ndef custom_kernel(data):\n    raise ValueError('no')\n"
    submission = samples.submission(problem_id="scaled_add", source=source)
    verdict = graders("cpu").grade(graders("cpu").request(problem, submission))
    assert verdict.status is Status.RUNTIME_ERROR
    assert "line 5" in str(verdict.diagnoses[0].detail) + verdict.diagnoses[0].message
