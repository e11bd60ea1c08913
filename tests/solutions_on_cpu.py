"""Runs shipped GPU solutions on the CPU and prints their errors as JSON.

TRITON_INTERPRET=1 python -m tests.solutions_on_cpu VARIANT PROBLEM...

Triton kernels run in Triton's interpreter, CUDA kernels as C++ with `cuda_on_cpu.h`.

A line for each problem: {"problem": ID, "tensors": {NAME: [error, float32 baseline error, norm]}}, all against float64.
"""

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import torch
import triton.language as tl
from torch.utils import cpp_extension
from triton.runtime import interpreter

ROOT = Path(__file__).parents[1]
PROGRAMS = 5
"""Programs that share the rows, where a solution starts a fixed number: each has several, and the interpreter runs one
after the other."""


def wide(handle):
    """The interpreter keeps bfloat16 as 16-bit integers, which its products multiply as such."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def widen_products():
    product = interpreter.InterpreterBuilder.create_dot

    def create_dot(self, a, b, *others):
        return product(self, wide(a), wide(b), *others)

    interpreter.InterpreterBuilder.create_dot = create_dot


def emulate_cuda():
    """Solutions' `load_inline` compiles their CUDA source as C++."""
    load_inline = cpp_extension.load_inline

    def load_emulated(name, cpp_sources, cuda_sources, functions, extra_cflags, extra_cuda_cflags):
        source = re.sub(r"#include <(c10/cuda/.*|cuda_pipeline.h)>", "", cuda_sources)
        source = re.sub(r"extern __shared__ float4 (\w+)\[\];", r"float4* const \1 = emulated::shared.data();", source)
        source = re.sub(r"([\w:]+(?:<[^;{}<>]*>)?)\s*<<<([^;]*?)>>>\s*\(([^;]*)\);", launch, source)
        source = f"#include <kernels/host.cuh>\n{cpp_sources}{source.replace('.is_cuda()', '.is_cpu()')}"
        return load_inline(
            f"{name}_on_cpu", source, functions=functions, extra_cflags=["-O1", "-w", "-std=c++20"],
            extra_include_paths=[str(Path(__file__).parent), str(ROOT / "grader" / "device_code")],
        )  # fmt: skip

    cpp_extension.load_inline = load_emulated


def launch(match):
    """`kernel<<<grid, block, 0, stream>>>(arguments);` as a call; grid and block may have commas within brackets."""
    kernel, configuration, arguments = match.groups()
    parts, depth = [""], 0
    for character in configuration:
        depth += (character in "(<{[") - (character in ")>}]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return f"emulated::launch({parts[0]}, {parts[1]}, [&] {{ {kernel}({arguments}); }});"


def answers(model, inputs, grad_output):
    """The output and the gradients of floating-point inputs and parameters, by name."""
    inputs = [value.detach().clone().requires_grad_(value.is_floating_point()) for value in inputs]
    names = [f"input {i}" for i, value in enumerate(inputs) if value.requires_grad]
    leaves = [value for value in inputs if value.requires_grad]
    names += [name for name, _ in model.named_parameters()]
    output = model(*inputs)
    if not output.requires_grad:  # the problem has no backward
        return {"output": output}
    gradients = torch.autograd.grad(output, [*leaves, *model.parameters()], grad_output.to(output.dtype))
    return {"output": output.detach(), **dict(zip(names, gradients, strict=True))}


def errors(problem_id, variant):
    problem = runpy.run_path(str(ROOT / "problems" / f"{problem_id}.py"))
    solution = runpy.run_path(str(ROOT / "reference_solutions" / f"{problem_id}.py"))
    if "PROGRAMS" in solution:
        solution["ModelNew"].forward.__globals__["PROGRAMS"] = PROGRAMS
    make_arguments, make_inputs = problem["get_variants"]()[variant]
    torch.manual_seed(0)
    arguments, inputs = make_arguments(), make_inputs()
    model, exact, candidate = (
        problem["Model"](*arguments),
        problem["Model"](*arguments),
        solution["ModelNew"](*arguments),
    )
    with torch.no_grad():
        for parameter in model.parameters():  # those that start as ones or zeros too
            parameter += 0.1 * torch.randn_like(parameter)
    exact.load_state_dict(model.state_dict())
    candidate.load_state_dict(model.state_dict())
    output = model(*inputs)
    grad_output = torch.randn(output.shape).to(output.dtype)
    expected = answers(
        exact.double(), [value.double() if value.is_floating_point() else value for value in inputs], grad_output
    )
    eager, found = answers(model, inputs, grad_output), answers(candidate, inputs, grad_output)
    for name, tensor in eager.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
    norms = {name: tensor.double().norm().item() for name, tensor in expected.items()}
    return {
        name: [*((side[name].double() - tensor).norm().item() for side in (found, eager)), norms[name]]
        for name, tensor in expected.items()
    }


if __name__ == "__main__":
    widen_products()
    emulate_cuda()
    for name in sys.argv[2:]:
        sys.stdout.write(json.dumps({"problem": name, "tensors": errors(name, sys.argv[1])}) + "\n")
