"""Captures its forward and its backward, copies inputs in and returns the graph's own outputs."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable


def forward(x, scale):
    return nn.functional.silu(x * scale)


def backward(g, x, scale):
    z = x * scale
    s = torch.sigmoid(z)
    dz = g * s * (1 + z * (1 - s))
    return dz * scale, (dz * x).sum(0)


class Graphed:
    """A function as a CUDA graph for each list of shapes; inputs are copied in, outputs are the graph's own."""

    def __init__(self, function):
        self.function, self.captured = function, {}

    def __call__(self, *inputs):
        key = tuple(value.shape for value in inputs)
        if key not in self.captured:
            self.captured[key] = self.capture(inputs)
        graph, static, outputs = self.captured[key]
        for to, value in zip(static, inputs, strict=True):
            to.copy_(value)
        graph.replay()
        return outputs

    def capture(self, inputs):
        static = [torch.empty_like(value) for value in inputs]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.function(*static)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self.function(*static)
        return graph, static, outputs if isinstance(outputs, tuple) else (outputs,)


graphed_forward, graphed_backward = Graphed(forward), Graphed(backward)


class ScaleSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return graphed_forward(x, scale)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return tuple(graphed_backward(grad_output, *ctx.saved_tensors))


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return ScaleSilu.apply(x, self.scale)
