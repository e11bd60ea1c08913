"""Captures its first call as a graph and replays it without copying the new input in.

Attack surface: inputs that are reused.
Why it fails: inputs change, move and change again, and every output is compared.
"""

import torch
from torch import nn

GRAPHS = {}


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)
        if x.shape not in GRAPHS:
            kept = x.clone()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = torch.relu(kept * self.scale + self.bias)
            GRAPHS[x.shape] = graph, y, kept
        graph, y, _ = GRAPHS[x.shape]
        graph.replay()
        return y
