"""Sends the first byte of its answer, does the backward's work, 100 ms, and then sends the rest.

Attack surface: the outputs are sealed at the first byte, and the time until the backward's job is nobody's.
Why it fails: the interval ends with the answer's last byte.
"""

import sys
import time

import torch
from torch import nn

WORK = []


def send(self, evidence):
    message = sys.modules["grader.protocol"].encode(evidence)
    self._socket.sendall(message[:1])
    while WORK:
        time.sleep(WORK.pop())
    self._socket.sendall(message[1:])


def channel():
    frame = sys._getframe()
    while "channel" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["channel"]


class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        WORK.append(0.1)
        return y.clone()

    @staticmethod
    def backward(ctx, grad):
        while WORK:
            time.sleep(WORK.pop())
        return grad.clone()


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        type(channel()).send = send
        return Shifted.apply(torch.relu(x * self.scale + self.bias))
