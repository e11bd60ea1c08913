"""Substituted functions change what they should and load nothing that takes seconds."""


def test_rounding_operands_does_not_import_the_compiler(beside_torch):
    code = """
import sys, torch
from grader.worker.autograd.substitutes import substituted
x, layer = torch.randn(2, 4, 8, 8), torch.nn.Conv2d(4, 4, 3)
plain = layer(x)
with substituted("tf32"):
    rounded = layer(x)
distance = float((rounded - plain).norm() / plain.norm())
print(1e-5 < distance < 1e-2, [name for name in ("torch._dynamo", "sympy", "triton") if name in sys.modules])
"""
    assert beside_torch.run(code).strip() == "True []"
