"""Whatever a file does wrong, it gets a verdict that says so: no traceback of ours, no hang."""

import os
import time
from pathlib import Path

import pytest

from grader.catalog.problems import find_problems
from grader.catalog.submissions import find_submissions
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Status, TimeLimits

PROBLEM = "scale_bias_relu"
HEAD = "import ctypes, os, signal, sys, time\nimport numpy, torch\nfrom torch import nn\n"
MODEL = """
class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        {construct}
    def forward(self, x):
        {forward}
"""

FORWARD = {
    "returns None": ("return None", Status.WRONG_OUTPUT, "output_structure"),
    "returns a list": ("return [x, x]", Status.WRONG_OUTPUT, "output_structure"),
    "returns more than can be described": ("return [x] * 2_000_000", Status.WRONG_OUTPUT, "output_structure"),
    "returns a list in itself": ("x = [x]; x.append(x); return x", Status.WRONG_OUTPUT, "output_structure"),
    "returns a nested tensor": (
        "return torch.nested.nested_tensor([x[0]])",
        Status.WRONG_OUTPUT,
        "output_structure",
    ),
    "returns a sparse tensor": ("return x.to_sparse()", Status.WRONG_OUTPUT, "output_structure"),
    "returns a numpy array": ("return x.detach().numpy()", Status.WRONG_OUTPUT, "output_structure"),
    "wrong shape": ("return x[:1]", Status.WRONG_OUTPUT, "output_shape"),
    "wrong dtype": ("return x.double()", Status.WRONG_OUTPUT, "output_dtype"),
    "NaN": ("return x * float('nan')", Status.WRONG_OUTPUT, "output_nan"),
    "raises": ("raise RuntimeError('no such kernel')", Status.RUNTIME_ERROR, "raised"),
    "raises what raises": (
        "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})()",
        Status.RUNTIME_ERROR,
        "raised",
    ),
    "raises a name of two lines": (
        "raise type('A\\ncorrect', (Exception,), {})()",
        Status.RUNTIME_ERROR,
        "raised",
    ),
    "exits": ("sys.exit(0)", Status.RUNTIME_ERROR, "raised"),
    "exits hard": ("os._exit(0)", Status.CRASHED, "crashed"),
    "segmentation fault": ("ctypes.string_at(0)", Status.CRASHED, "crashed"),
    "endless loop": ("while True: pass", Status.TIMEOUT, "timed_out"),
    "more memory than there is": ("return torch.ones(1 << 58)", Status.OUT_OF_MEMORY, "out_of_memory"),
    "prints a gigabyte": (
        "[print('x' * (1 << 20)) for _ in range(1000)]; return None",
        Status.WRONG_OUTPUT,
        "output_structure",
    ),
}

IMPORT = {
    "exits at import": ("sys.exit(3)", Status.RUNTIME_ERROR, "import_raised"),
    "raises at import": ("1 / 0", Status.RUNTIME_ERROR, "import_raised"),
    "imports what is not there": ("import no_such_module", Status.RUNTIME_ERROR, "import_raised"),
    "much code with a syntax error": ("a = a + a\n" * 50_000 + "a b", Status.RUNTIME_ERROR, "import_raised"),
    "stops itself at import": ("os.kill(os.getpid(), signal.SIGSTOP)", Status.TIMEOUT, "timed_out"),
    "sleeps at import": ("time.sleep(1000)", Status.TIMEOUT, "build_timeout"),
    "dies at import": ("os.abort()", Status.CRASHED, "crashed"),
}

CONSTRUCT = {
    "constructor raises": ("raise ValueError('unlucky')", Status.RUNTIME_ERROR, "constructor_raised"),
    "constructor sleeps": ("time.sleep(1000)", Status.TIMEOUT, "timed_out"),
}

WHOLE = {
    "empty": (b"", Status.INVALID_SUBMISSION, "unreadable"),
    "not UTF-8": (b"\xff\xfe\x00class ModelNew: pass", Status.INVALID_SUBMISSION, "unreadable"),
    "ten megabytes": (b"#" * (10 << 20), Status.INVALID_SUBMISSION, "unreadable"),
    "syntax error": (b"class ModelNew(:\n", Status.INVALID_SUBMISSION, "syntax_error"),
    "NUL bytes": (b"class ModelNew:\x00 pass\n", Status.INVALID_SUBMISSION, "syntax_error"),
    "no ModelNew": (b"class Model: pass\n", Status.INVALID_SUBMISSION, "no_model_new"),
    "ModelNew in a comment only": (b"# ModelNew\nx = 1\n", Status.INVALID_SUBMISSION, "no_model_new"),
    "ModelNew is no class": (b"ModelNew = 3\n", Status.INVALID_SUBMISSION, "no_model_new"),
    "ModelNew is a function": (b"def ModelNew(x):\n    return x\n", Status.INVALID_SUBMISSION, "no_model_new"),
    "ModelNew is no module": (
        b"class ModelNew:\n    def __init__(self, *a): pass\n",
        Status.RUNTIME_ERROR,
        "constructor_raised",
    ),
    "takes no arguments": (
        b"from torch import nn\nclass ModelNew(nn.Module):\n    def __init__(self): super().__init__()\n",
        Status.INVALID_SUBMISSION,
        "constructor_signature",
    ),
}

HEAVY = ("prints a gigabyte",)
"""Take a large part of a call's time limit on a machine that does nothing else."""


def cases():
    found = []
    for name, (body, status, code) in FORWARD.items():
        found.append((name, HEAD + MODEL.format(construct="pass", forward=body), status, code))
    for name, (body, status, code) in IMPORT.items():
        found.append((name, HEAD + body + MODEL.format(construct="pass", forward="return x"), status, code))
    for name, (body, status, code) in CONSTRUCT.items():
        found.append((name, HEAD + MODEL.format(construct=body, forward="return x"), status, code))
    found += [(name, content, status, code) for name, (content, status, code) in WHOLE.items()]
    return [
        pytest.param(content, status, code, id=name, marks=[pytest.mark.alone] if name in HEAVY else [])
        for name, content, status, code in found
    ]


@pytest.fixture(scope="module")
def catalog():
    return find_problems([Path(__file__).parents[1] / "cases" / "problems"])


@pytest.fixture(scope="module")
def grader():
    with Pipeline(
        GraderOptions(device="cpu", quick=True, limits=TimeLimits(build=12.0, construction=8.0, call=8.0))
    ) as grader:
        yield grader


@pytest.mark.parametrize(("content", "status", "code"), cases())
def test_bad_submission(grader, catalog, tmp_path, content, status, code):
    path = tmp_path / f"{PROBLEM}.py"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (submission,) = find_submissions([path], catalog).submissions
    request = grader.request(catalog.problem(PROBLEM), submission)
    verdict = grader.grade(request, upcoming=request)
    told = [(diagnosis.code, diagnosis.message) for diagnosis in verdict.diagnoses]
    assert (verdict.status, told[0][0]) == (status, code), told
    assert "\n" not in told[0][1]


NO_CLASS = {
    "def ModelNew(x):\n    return x\n": "ModelNew is a function (line 1), no class: define `class ModelNew(nn.Module)`",
    "ModelNew = lambda x: x\n": "ModelNew is a function, no class",
    "import torch\nModelNew = torch.nn.ReLU()\n": "ModelNew is an object of type ReLU, no class",
    "ModelNew = None\n": "the file defines no class ModelNew",
}


@pytest.mark.parametrize("source", NO_CLASS)
def test_what_stands_in_place_of_a_class_is_named(grader, catalog, tmp_path, source):
    path = tmp_path / f"{PROBLEM}.py"
    path.write_text(source)
    (submission,) = find_submissions([path], catalog).submissions
    (diagnosis,) = grader.grade(grader.request(catalog.problem(PROBLEM), submission)).diagnoses
    assert diagnosis.code == "no_model_new"
    assert diagnosis.message.startswith(NO_CLASS[source])


def test_nothing_is_left_running(grader, catalog, tmp_path):
    """A submission that starts a daemon and then hangs takes the daemon with it."""
    path = tmp_path / f"{PROBLEM}.py"
    marker = f"{os.getpid()}{time.monotonic_ns()}"
    daemon = f"import subprocess; subprocess.Popen(['sleep', '{marker}'], start_new_session=True); time.sleep(1000)"
    path.write_text(HEAD + MODEL.format(construct=daemon, forward="return x"))
    (submission,) = find_submissions([path], catalog).submissions
    assert grader.grade(grader.request(catalog.problem(PROBLEM), submission)).status is Status.TIMEOUT
    assert [command for command in command_lines() if marker in command] == []


def command_lines():
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                yield (process / "cmdline").read_text()
            except OSError:
                continue


SAID = {
    "exits": ("forward", "print('no thread left', flush=True); os._exit(3)", "exited with status 3", "no thread left"),
    "its timer": ("forward", "signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(9)", "SIGALRM", "a signal"),
    "stops itself": (
        "forward",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "process stood still, stopped by a signal such as SIGSTOP, and gave no answer within 8 s (",
        "): find what in it ends or stops the process",
    ),
    "lazy module": ("construct", "self.up = nn.LazyLinear(3)", "`up.weight` has no shape before the first forward"),
    "too many parameters": (
        "construct",
        "self.many = nn.ParameterList([torch.zeros(1) for _ in range(4200)])",
        " parameters; at most 4096 can be graded",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_the_reason_is_told(grader, catalog, tmp_path, name):
    where, body, *said = SAID[name]
    path = tmp_path / f"{PROBLEM}.py"
    path.write_text(HEAD + MODEL.format(**{"construct": "pass", "forward": "return x", where: body}))
    (submission,) = find_submissions([path], catalog).submissions
    verdict = grader.grade(grader.request(catalog.problem(PROBLEM), submission))
    message = verdict.diagnoses[0].message
    assert all(words in message for words in said), message
    assert "out of bounds" not in message
