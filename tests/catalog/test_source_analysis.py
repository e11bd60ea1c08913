"""The device and the languages of a source, read off its text."""

from typing import get_args

import pytest

from grader.catalog.source_analysis import Language, analyse
from grader.verdict.labels import LANGUAGES
from tests.pace import seconds


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("load_inline(name='a', cpp_sources=[c], cuda_sources=[k])", "cuda"),
        ("load_inline('a', c, k)", "cuda"),
        ("load_inline('a', c)", "cpu"),
        ("torch.utils.cpp_extension.load_inline(name='a', cpp_sources=c, functions=['f'])", "cpu"),
        ("load_inline(name='a', cpp_sources=c, cuda_sources=[])", "cpu"),
        ("load_inline(name='a', cpp_sources=c, cuda_sources=None)", "cpu"),
        ("load_inline(name='a', cpp_sources=c, cuda_sources='')", "cpu"),
        ("load_inline(name='a', cpp_sources=c, with_cuda=True)", "cuda"),
        ("load(name='a', sources=['a.cpp', 'a.cu'])", "cuda"),
        ("load(name='a', sources=['a.cpp'])", "cpu"),
        ("import triton.language as tl", "cuda"),
        ("from triton import jit", "cuda"),
        ("import cupy", "cuda"),
        ("from numba import cuda", "cuda"),
        ("k = '''__global__ void f() {}'''\ncompile_somehow(k)", "cuda"),
        ("x = y.cuda()", "cuda"),
        ("x = torch.empty(3, device='cuda:0')", "cuda"),
        ("x = y.to('cuda')", "cuda"),
        ("d = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')", "any"),
        ("def get_inputs():\n    return [torch.randn(3).cuda()]", "any"),
        ("if x.device.type == 'cuda': pass", "any"),
        ("class ModelNew(nn.Module):\n    def forward(self, x): return torch.relu(x)", "any"),
        ("", "any"),
        ("def (\nload_inline(cuda_sources=[k])", "cuda"),
        ("def (\nload_inline(cpp_sources=[k])", "cpu"),
        ("def (\nclass ModelNew: ...", "any"),
        ("-" * 200_000 + "1", "any"),
        ("a\0b", "any"),
        ("from numba.cuda import jit", "cuda"),
    ],
)
def test_the_device_that_a_source_needs(source, expected):
    assert analyse(source).needs == expected


@pytest.mark.parametrize(
    ("source", "languages"),
    [
        ("load_inline(name='a', cpp_sources=[c], cuda_sources=[k])", ("cuda",)),
        ("load(name='a', sources=['a.cpp', 'a.cu'])", ("cuda",)),
        ("load_inline(name='a', cpp_sources=[c])", ("cpp",)),
        ("import triton\nimport triton.language as tl", ("triton",)),
        ("model = torch.compile(Model())", ("torch_compile",)),
        ("@torch.compile\ndef f(x): return x", ("torch_compile",)),
        ("from torch import compile", ("torch_compile",)),
        ("kernel = torch.cuda._compile_kernel('__global__ void f() {}', 'f')", ("cuda", "nvrtc")),
        ("from cuda.bindings import nvrtc", ("nvrtc",)),
        ("from cuda import nvrtc", ("nvrtc",)),
        ("import cupy as cp\nk = cp.RawKernel('__global__ void f() {}', 'f')", ("cuda", "cupy")),
        ("from numba import njit", ("numba",)),
        ("import cutlass.cute as cute", ("cute",)),
        ("import tilelang.language as T", ("tilelang",)),
        ("import triton\nload_inline(cpp_sources=[c])", ("cpp", "triton")),
        ("import triton.language as tl\ntl.load(x)", ("triton",)),
        ("w = torch.load(f)", ("pytorch",)),
        ("from torch.utils import cpp_extension\ncpp_extension.load('a', ['a.cpp'])", ("cpp",)),
        ("torch.utils.cpp_extension.load('a', ['a.cpp'])", ("cpp",)),
        ("class ModelNew(nn.Module): ...", ("pytorch",)),
        ("import re\nre.compile('x')", ("pytorch",)),
        ("def (\nimport triton", ("triton",)),
        ("def (\nload_inline(cuda_sources=[k])", ("cuda",)),
        ("", ("pytorch",)),
    ],
)
def test_the_languages_of_a_source(source, languages):
    assert analyse(source).languages == languages


def test_every_language_is_a_label():
    assert set(get_args(Language)) == LANGUAGES.keys()


@pytest.mark.parametrize(
    "source",
    [
        "\n" * 500_000 + "(",
        " " * 500_000 + "(",
        "cuda_sources " * 40_000 + "(",
        "x = y.cuda(a, b)\n" * 20_000,
        "a.b\n" * 100_000,
    ],
    ids=["blank lines", "one blank line", "words", "calls", "attributes"],
)
def test_a_long_source_takes_time_in_proportion(source):
    assert seconds(lambda: analyse(source)) < 10
