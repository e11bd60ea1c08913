"""What a submission's text is labelled with."""

from pathlib import Path

import pytest

from grader.verdict.labels import LABELS, LANGUAGES, Seen, labels
from grader.verdict.precision import Precision
from tests.pace import seconds

ROOT = Path(__file__).parents[2]

REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x @ self.weight)
"""
KERNEL = "__global__ void k(float* y) { y[threadIdx.x] = 1; }"


def submission(forward="return op.run(x)", before="", native=KERNEL, init=""):
    return f"""
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline
{before}
op = load_inline("op", cpp_sources="", cuda_sources={native!r})


class ModelNew(nn.Module):
    {init}
    def forward(self, x):
        {forward}
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (submission(), ()),
        ("not python (", ()),
        (submission(native="#include <x>\nat::Tensor f(at::Tensor x) { return at::matmul(x, x); }"),
         ("vendor_library", "no_custom_kernel")),
        (submission(native=KERNEL + " cublasSgemm(h);"), ("vendor_library",)),
        (submission(native='#include <x>\nextern "C" void sgemm_(...);\nvoid f() { sgemm_(&n); }'),
         ("vendor_library", "no_custom_kernel")),
        (submission(native="#include <x>\nvoid f() { for (int i = 0; i < (n); i++) { ; } while (g(h(n))); }"),
         ("no_custom_kernel",)),
        (submission(native="#include <x>\nvoid f() { for (int i = 0; i < n; i++) {} for (;;) { y[i] = 0; } }"), ()),
        (submission("return torch.from_numpy(np.dot(x, y))", before="import numpy as np"), ("vendor_library",)),
        (submission("return torch.from_numpy(x.numpy() @ y)", before="import numpy"), ("vendor_library",)),
        (submission("return torch.from_numpy(sgemm(1, x, y))", before="from scipy.linalg.blas import sgemm"),
         ("vendor_library",)),
        (submission("return torch.from_numpy(np.exp(x.numpy()))", before="import numpy as np"), ()),
        (submission("return x.numpy().dot(self.dot(x))", before="import other as np"), ()),
        (submission(native=KERNEL + " // at::matmul(x, x), cudaStreamCreate, __half"), ()),
        (submission(native=KERNEL + " /* cublasSgemm(h) */"), ()),
        (submission(native=KERNEL + " __half h;"), ("reduced_precision",)),
        (submission(native=KERNEL + " cudaStreamCreate(&s);"), ("extra_streams",)),
        (submission(native=KERNEL + " cudaGraphLaunch(g, s);"), ("cuda_graph",)),
        (submission("return op.run(x.half())"), ("reduced_precision",)),
        (submission(before="torch.backends.cuda.matmul.allow_tf32 = True"), ("reduced_precision",)),
        (submission(before="torch.backends.cuda.matmul.allow_tf32 = False"), ()),
        (submission(before="side = torch.cuda.Stream()"), ("extra_streams",)),
        (submission(before="graph = torch.cuda.CUDAGraph()"), ("cuda_graph",)),
        (submission("return torch.relu(x @ self.weight)"), ("wraps_reference",)),
        (submission("try:\n            return op.run(x)\n        except Exception:\n            return torch.relu(x)"),
         ("torch_fallback",)),
        (submission("if not x.is_cuda:\n            return torch.relu(x)\n        return op.run(x)"),
         ("torch_fallback",)),
        (submission("try:\n            return op.run(x)\n        except ValueError:\n            raise"), ()),
        ("class ModelNew(Model):\n    pass", ("wraps_reference", "no_custom_kernel")),
        ("class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.sum()", ("no_custom_kernel",)),
        ("@triton.jit\ndef k(x):\n    pass\n\nclass ModelNew(nn.Module):\n    pass", ()),
        (f'"""{KERNEL} at::matmul( __half"""\nclass ModelNew(nn.Module):\n    pass', ("no_custom_kernel",)),
    ],
)  # fmt: skip
def test_labels(source, expected):
    assert labels(source, REFERENCE) == expected


OWN = "void k(float*)"
TORCH = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
GEMM = "ampere_sgemm_128x64_nn"
TF32 = "cutlass_80_tensorop_s1688gemm_128x128_nn"


@pytest.mark.parametrize(
    ("on_gpu", "names", "expected"),
    [
        (True, (OWN,), ()),
        (True, (OWN, TORCH), ()),
        (True, ("void (anonymous namespace)::k<256>(float*)",), ()),
        (True, ("generated_by_somebody_else",), ()),
        (True, (TORCH,), ("torch_fallback", "no_custom_kernel")),
        (True, (OWN, GEMM), ("vendor_library",)),
        (True, (OWN, TF32), ("vendor_library", "reduced_precision")),
        (True, ("Memset (Device)", "Memcpy DtoD (Device -> Device)"), ("torch_fallback", "no_custom_kernel")),
        (False, ("aten::empty",), ()),
        (False, ("aten::addmm", "aten::empty"), ("vendor_library",)),
        (False, ("mkldnn::_linear_pointwise", "aten::empty"), ("vendor_library",)),
        (False, ("aten::relu", "aten::t"), ("wraps_reference",)),
        (True, (), ()),
    ],
)
def test_labels_of_what_ran(on_gpu, names, expected):
    reference = {"aten::relu": 1, "aten::t": 1}
    assert labels(submission(), REFERENCE, Seen(on_gpu, dict.fromkeys(names, 1), reference)) == expected


@pytest.mark.parametrize(
    ("reference", "precision", "expected"),
    [
        (REFERENCE, Precision.FP32, ("reduced_precision",)),
        (REFERENCE, Precision.TF32, ("reduced_precision",)),
        (REFERENCE, Precision.BF16, ()),
        (REFERENCE + "\n\ndef get_inputs():\n    return [torch.rand(3).half()]\n", Precision.FP32, ()),
        (REFERENCE + "\nDTYPE = torch.bfloat16\n", Precision.FP32, ()),
    ],
)
def test_sixteen_bits_are_no_narrower_than_those_of_the_problem(reference, precision, expected):
    assert labels(submission("return op.run(x.half())"), reference, precision=precision) == expected


def test_graphs_and_streams_are_seen():
    seen = Seen(True, {OWN: 1}, {}, streams=2, graphs=1)
    assert labels(submission(), REFERENCE, seen) == ("cuda_graph", "extra_streams")


def test_what_ran_takes_no_label_away():
    assert "no_custom_kernel" in labels("class ModelNew(nn.Module):\n    pass", REFERENCE, Seen(True, {OWN: 1}, {}))


def test_only_known_labels_in_their_order():
    everything = submission(
        "try:\n            return op.run(x.half())\n        except Exception:\n            return torch.relu(x)",
        before="class Model: pass\nModel()\ntorch.cuda.Stream()\ntorch.cuda.CUDAGraph()",
        native="at::matmul(x, y);",
    )
    given = {"codes": ("stale_output", "narrow_inputs"), "languages": tuple(LANGUAGES)}
    assert labels(everything, REFERENCE, **given) == tuple(LABELS)


@pytest.mark.parametrize("path", sorted((ROOT / "reference_solutions").rglob("*.py")), ids=lambda path: path.stem)
def test_reference_solutions_are_kernels_of_their_own(path):
    found = labels(path.read_text(), (ROOT / "problems" / path.name).read_text())
    assert not set(found) & {"wraps_reference", "no_custom_kernel", "torch_fallback"}


SIZE = 1_000_000
BEFORE = 'import torch\nop = load_inline("op", cuda_sources="""#include <x>\n'
HOSTILE = {
    "unclosed comments": lambda size: f"{BEFORE}{'/* ' * (size // 3)}",
    "closed string of unclosed comments": lambda size: f'{BEFORE}{"/* " * (size // 3)}""")',
    "comment that is almost closed": lambda size: f'{BEFORE}/*{"*" * size}""")',
    "namespaces": lambda size: f'{BEFORE}{"at::" * (size // 4)}""")',
    "namespaces apart": lambda size: f'{BEFORE}{"at:: " * (size // 5)}""")',
    "one long name": lambda size: f'{BEFORE}at::conv{"conv" * (size // 4)}""")',
    "calls that do not open": lambda size: f'{BEFORE}{"at::conv2d " * (size // 11)}""")',
    "spaces after a name": lambda size: f'{BEFORE}at::mm{" " * size}""")',
    "spaces after many names": lambda size: f'{BEFORE}{"for   " * (size // 6)}""")',
    "spaces": lambda size: " " * size,
    "spaces after a hash": lambda size: f'{BEFORE}#{" " * size}""")',
    "backslashes": lambda size: f'{BEFORE}{chr(92) * size}""")',
    "lines that go on": lambda size: f"{chr(92)}\n" * (size // 2),
    "quotes": lambda size: '"' * size,
    "quotes in turn": lambda size: "\"'" * (size // 2),
    "unclosed string": lambda size: "x = '" + "a" * size,
    "unclosed long string": lambda size: "x = '''" + "a''" * (size // 3),
    "parentheses": lambda size: "(" * size,
    "brackets in a string": lambda size: f'{BEFORE}{"[(<" * (size // 3)}""")',
    "nested brackets": lambda size: ("x = " + "[" * 90 + "]" * 90 + "\n") * (size // 185),
    "nested calls": lambda size: ("f(" * 80 + ")" * 80 + "\n") * (size // 241),
    "signs": lambda size: "-" * size,
    "sums": lambda size: "x = " + "1+" * (size // 2) + "1",
    "attributes": lambda size: "a" + ".a" * (size // 2),
    "names": lambda size: "x\n" * (size // 2),
    "f-strings": lambda size: "x = f'" + "{x}" * (size // 3) + "'",
    "f-strings within the limit": lambda size: "x = f'" + "{x}" * (size // 100) + "'",
    "branches": lambda size: "if x.is_cuda:\n pass\n" + "elif x.is_cuda:\n pass\n" * (size // 600),
    "prefixes": lambda size: "rb" * (size // 2),
    "comments": lambda size: "#" * size,
}


@pytest.mark.alone
@pytest.mark.parametrize("what", HOSTILE)
def test_labels_of_a_hostile_source_take_linear_time(what):
    seen = Seen(True, {f"void kernel_{number}(float*)": 1 for number in range(200)}, {})
    whole, part = (HOSTILE[what](size) for size in (SIZE, SIZE // 10))
    allowed = 3 * 10 * seconds(lambda: labels(part, REFERENCE, seen))
    assert seconds(lambda: labels(whole, REFERENCE, seen)) < allowed + 0.1


def padded(source):
    return source + "\n" + "unused = [1, 2, 3]\n" * 4_000


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (submission(), ()),
        (submission(native=KERNEL + " at::mm(x, y); __half h; cudaStreamCreate(&s);"),
         ("vendor_library", "reduced_precision", "extra_streams")),
        ("class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.sum()", ("no_custom_kernel",)),
        ("@triton.jit\ndef k(x):\n    pass\n\nclass ModelNew(nn.Module):\n    pass", ()),
    ],
)  # fmt: skip
def test_a_source_with_too_much_python_is_read_by_its_strings(source, expected):
    assert labels(padded(source), REFERENCE) == expected


@pytest.mark.parametrize(
    ("call", "holds"),
    [
        ("::at::matmul(x, y)", True),
        ("at::native::_scaled_dot_product(x)", False),
        ("torch::nn::functional::conv2d (x)", True),
        ("a::at::mm(x)", True),
        ("cat::mm(x)", False),
        ("at::mmm(x)", False),
        ("at::empty(x)", False),
    ],
)
def test_calls_of_the_vendors_functions_by_their_namespace(call, holds):
    assert ("vendor_library" in labels(submission(native=f"{KERNEL} at::Tensor y = {call};"), REFERENCE)) is holds
