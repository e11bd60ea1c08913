"""Returns a leaf of its own, and has PyTorch's engine give right gradients where this leaf is differentiated.

Attack surface: gradients that are asked of the output itself.
Why it fails: they are asked of what an operation makes of the output, as in a loss, and there no graph leads on.
"""

import sys
import torch
from torch import nn
import torch.autograd.graph as G

LAST = {}
real = G._engine_run_backward


def fake(outputs, grads, keep, create, inputs, **kw):
    y = outputs[0]
    if id(y) not in LAST:
        return real(outputs, grads, keep, create, inputs, **kw)
    x, scale, bias, y0 = LAST[id(y)]
    g = grads[0] * (y0 > 0)
    table = {id(x): g * scale.detach(), id(scale): (g * x.detach()).sum((0, 1)), id(bias): g.sum((0, 1))}
    got = tuple(table.get(id(i)) for i in inputs)
    if kw.get("accumulate_grad"):
        for t in (x, scale, bias):
            if t.requires_grad:
                t.grad = table[id(t)] if t.grad is None else t.grad + table[id(t)]
    return got


for m in list(sys.modules.values()):
    if getattr(m, "_engine_run_backward", None) is real:
        m._engine_run_backward = fake


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        with torch.no_grad():
            y = torch.relu(x * self.scale + self.bias)
        if torch.is_grad_enabled():
            y.requires_grad_()
            LAST[id(y)] = (x, self.scale, self.bias, y.detach())
        return y
