"""What a submission's text is labelled with."""

from pathlib import Path

import pytest

from grader.verdict.labels import LABELS, Seen, labels

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
        (False, ("aten::relu", "aten::t"), ("wraps_reference",)),
        (True, (), ()),
    ],
)
def test_labels_of_what_ran(on_gpu, names, expected):
    reference = {"aten::relu": 1, "aten::t": 1}
    assert labels(submission(), REFERENCE, Seen(on_gpu, dict.fromkeys(names, 1), reference)) == expected


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
    assert labels(everything, REFERENCE) == tuple(LABELS)


@pytest.mark.parametrize("path", sorted((ROOT / "reference_solutions").rglob("*.py")), ids=lambda path: path.stem)
def test_reference_solutions_are_kernels_of_their_own(path):
    found = labels(path.read_text(), (ROOT / "problems" / path.name).read_text())
    assert not set(found) & {"wraps_reference", "no_custom_kernel", "torch_fallback"}
