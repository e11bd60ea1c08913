"""Lean headers change only the build time: device code, numbers and errors are the same."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from grader.machine.toolchain import find_cuda_home
from grader.worker.compile import lean_headers

ROOT = Path(__file__).parents[3]
SOLUTIONS = sorted(path for path in (ROOT / "reference_solutions").glob("*.py") if "cuda_sources" in path.read_text())
TWINS = sorted((ROOT / "reference_solutions" / "cpu").glob("*.py"))

BOTH_WAYS = """
import sys
from pathlib import Path
from torch.utils import cpp_extension
from grader.worker.compile.importing import Builder

def keep(directory, verbose, error_prefix):
    ninja = Path(directory, "build.ninja").read_text()
    kept.append(ninja)
    Path(sys.argv[2], f"{len(kept)}.ninja").write_text(ninja)
    if len(kept) == 2:
        raise SystemExit
    raise RuntimeError("as if it did not compile")

kept = []
cpp_extension._run_ninja_build = keep
Builder().install()
exec(compile(Path(sys.argv[1]).read_text(), sys.argv[1], "exec"), {"__name__": "submission"})
"""

RUN = """
import json, random, sys
from pathlib import Path
import torch
from torch.utils import cpp_extension
from grader.worker.compile import importing as build, lean_headers as lean

stock, calls = cpp_extension._run_ninja_build, []
cpp_extension._run_ninja_build = lambda *args, **kwargs: (calls.append(1), stock(*args, **kwargs))
if sys.argv[1] == "stock":
    build.lean_headers = lambda *_: None
build.Builder().install()

def load(path):
    names = {"__name__": Path(path).stem}
    exec(compile(Path(path).read_text(), path, "exec"), names)
    return names

torch.manual_seed(0)
torch.set_num_threads(1)
init_inputs, inputs = load(sys.argv[3])["get_variants"]()["small"]
model, values = load(sys.argv[2])["ModelNew"](*init_inputs()), inputs()
output = model(*values)
first = output if isinstance(output, torch.Tensor) else output[0]
gradients = torch.autograd.grad(first.sum(), list(model.parameters()), allow_unused=True)
outputs = [output] if isinstance(output, torch.Tensor) else list(output)
torch.save([*outputs, *gradients], sys.argv[4])
print(json.dumps(len(calls)))
"""


def environment(tmp_path):
    home = find_cuda_home()
    cuda = {"CUDA_HOME": str(home)} if home else {}
    folders = {"TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions"), "PYTHONPATH": str(ROOT)}
    return os.environ | cuda | folders | {"TORCH_CUDA_ARCH_LIST": "9.0", "TORCH_NO_COMPILER_WRAPPER": "1"}


def compiler(tmp_path, text, *flags):
    """Return stdout of the C++ compiler for a source, with PyTorch's headers."""
    source = tmp_path / "source.cpp"
    source.write_text(text)
    folders = [f"-isystem{path}" for path in (*cpp_extension.include_paths(), sysconfig.get_paths()["include"])]
    done = subprocess.run(
        ["c++", "-std=c++20", *flags, *folders, str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


def offer(tmp_path, text, name="main.cpp", flags=()):
    path = tmp_path / name
    path.write_text(text)
    return lean_headers.lean_headers([path], list(flags), tmp_path / "lean")


def named(tmp_path):
    return set(re.findall(r"ATen/ops/(\w+)\.h", (tmp_path / "lean" / "grader_operators.h").read_text()))


def test_operators_are_those_that_the_source_names(tmp_path):
    text = "torch::Tensor f(torch::Tensor x) { at::add_out(x, x, x); auto y = exp(x); return at::relu_(y).mul(x); }"
    assert offer(tmp_path, text + " // at::sub")
    assert named(tmp_path) == {"add", "exp", "relu"}


@pytest.mark.parametrize(
    "line",
    [
        '#include "own.h"',
        "#include <torch/torch.h>",
        "#include <ATen/ATen.h>",
        "#include HEADER",
        "using namespace torch;",
        "using namespace  at;",
        "namespace t = torch;",
        "struct Net : torch::nn::Module {};",
        "using torch::autograd::Function;",
        "#define CALL(a, b) a##b",
        "#ifdef AT_PER_OPERATOR_HEADERS",
        "#if __has_include(<ATen/ops/add.h>)",
    ],
)
def test_sources_that_depend_on_other_headers_get_the_stock_headers(tmp_path, line):
    assert offer(tmp_path, "#include <torch/extension.h>\n") is not None
    assert offer(tmp_path, f"#include <torch/extension.h>\n{line}\n") is None


@pytest.mark.parametrize("flag", ["-I/opt/other", "-include", "-isystem/opt/other", "-imacros"])
def test_flags_that_add_headers_get_the_stock_ones(tmp_path, flag):
    assert offer(tmp_path, "int x;", flags=["-O3"]) is not None
    assert offer(tmp_path, "int x;", flags=[flag]) is None


@pytest.mark.parametrize(
    ("error", "again"),
    [
        ("main.cpp:1:10: fatal error: cutlass/gemm.h: No such file or directory", False),
        ("/tmp/ccFg1.s:12: Error: file not found: /etc/os-release", False),
        (
            "ptxas main.ptx, line 3; error   : Unknown symbol 'x'\nptxas fatal   : Ptx assembly aborted due to errors",
            False,
        ),
        ("main.cpp:3:9: error: 'exp_' is not a member of 'at'", True),
        ("main.cpp:3:9: error: expected initializer before 'f'", True),
        ('main.cu(3): error: identifier "expf_" is undefined', True),
        ('main.cpp:1:10: fatal error: a.h: No such file or directory\nmain.cu(3): error: expected a ";"', True),
        ("main.o: in function `f': undefined reference to `g'\ncollect2: error: ld returned 1 exit status", True),
        ("ninja: build stopped: subcommand failed.", True),
    ],
)
def test_stock_headers_are_tried_where_they_may_help(error, again):
    log = f"Error building extension 'f': [1/2] c++ -c main.cpp\nFAILED: main.o\n{error}\nninja: build stopped."
    assert lean_headers.may_be_at_fault(log) is again


@pytest.mark.parametrize("header", ["torch/extension.h", "torch/types.h"])
def test_no_function_of_the_c_library_changes_its_overloads(tmp_path, header):
    """Without <math.h>, exp(x) of a float is computed in double; without <cstdlib>, abs(x) of a float in int."""
    folders = offer(tmp_path, f"#include <{header}>\n")

    def overloading(*flags):
        found = compiler(tmp_path, f"#include <{header}>\n", "-M", *flags)
        return set(re.findall(r"/(cmath|math\.h|cstdlib|stdlib\.h|std_abs\.h|complex|cinttypes)(?=\s)", found))

    stock = overloading()
    assert {"cmath", "cstdlib"} <= stock
    assert overloading(*(f"-I{folder}" for folder in folders)) == stock


@pytest.mark.deep
def test_every_operator_compiles_with_lean_headers(tmp_path):
    folders = offer(tmp_path, "#include <torch/types.h>\n")
    every = "".join(f"#include <ATen/ops/{name}.h>\n" for name in sorted(lean_headers._operator_headers()))
    (tmp_path / "lean" / "grader_operators.h").write_text(every)
    compiler(tmp_path, "#include <torch/types.h>\n", "-fsyntax-only", *(f"-I{folder}" for folder in folders))


@pytest.mark.deep
@pytest.mark.nvcc
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_device_code_is_the_same(tmp_path, path):
    subprocess.run([sys.executable, "-c", BOTH_WAYS, path, tmp_path], env=environment(tmp_path), check=True)
    device_code = []
    for number in (1, 2):
        ninja = (tmp_path / f"{number}.ninja").read_text()
        assert (str(lean_headers.LEAN_HEADERS) in ninja) == (number == 1), "lean first, then stock"
        flags = re.sub(r"-gencode=\S+", "", re.search(r"^cuda_cflags = (.*)$", ninja, re.MULTILINE)[1])
        source = re.search(r"cuda_compile (\S+\.cu)", ninja)[1]
        target = tmp_path / f"{number}.ptx"
        subprocess.run(
            f"{find_cuda_home()}/bin/nvcc {flags} -arch=compute_90a -ptx {source} -o {target}", shell=True, check=True
        )
        # Names of kernels in an anonymous namespace begin with a hash of the preprocessed text.
        device_code.append(re.sub(r"_GLOBAL__N__[0-9a-f]{8}|_cu_[0-9a-f]{8}(_\d+)?", "", target.read_text()))
    assert ".entry" in device_code[0]
    assert device_code[0] == device_code[1]


@pytest.mark.deep
@pytest.mark.parametrize("path", TWINS, ids=lambda path: path.stem)
def test_numbers_are_the_same(tmp_path, path):
    found = []
    for way in ("lean", "stock"):
        arguments = [way, path, ROOT / "problems" / path.name, tmp_path / way]
        done = subprocess.run(
            [sys.executable, "-c", RUN, *arguments],
            env=environment(tmp_path / f"{way}-build"),
            check=True,
            stdout=subprocess.PIPE,
        )
        assert json.loads(done.stdout) == 1, "it was built once, with one kind of headers"
        found.append(torch.load(tmp_path / way))
    assert len(found[0]) > 1
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
