"""Computes whatever lies in the inbox as soon as it is there, in a thread, and hands out the result when asked; takes 20 ms for it.

Attack surface: inputs that are released together or ahead of the clock.
Why it fails: one input is there at a time, and the clock runs from before it is.
"""

import time

import torch
from torch import nn

from grader import protocol as p
from grader.worker.registry import HANDLERS

READY = {}
real = HANDLERS[p.PutInputs]


def put_inputs(session, step):
    done = real(session, step)
    if "model" in session.models and not torch.is_grad_enabled() or step.inputs == "t":
        model, x = session.models["model"], session.inputs[step.inputs].arguments[0]
        time.sleep(0.02)
        if not x.requires_grad:
            with torch.no_grad():
                READY[x.data_ptr()] = torch.relu(x * model.scale + model.bias)
    return done


HANDLERS[p.PutInputs] = put_inputs


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)
        ready = READY.pop(x.data_ptr(), None)
        return torch.relu(x * self.scale + self.bias) if ready is None else ready
