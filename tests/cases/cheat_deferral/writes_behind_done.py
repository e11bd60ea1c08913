"""Answers as soon as it is asked, and goes on computing into the outbox while the referee is busy with the answer.

Attack surface: the time between an answer and the copy of what it is about.
Why it fails: the copy is taken at the answer's first byte, block by block in an order drawn for it; the referee interval ends with it.
"""

import threading
import time

import torch
from torch import nn

from grader import protocol as p
from grader.worker.registry import HANDLERS

real = HANDLERS[p.Export]


def export(session, step):
    if any(source.startswith("output") for source in step.items):
        threading.Thread(target=late, args=(session, step)).start()
        return p.Exported()
    return real(session, step)


def late(session, step):
    outputs = dict(session.found(step.items))
    time.sleep(0.0005)
    for source, slot in step.items.items():
        session.regions["outbox"].slot(slot).copy_(outputs[source].detach())


HANDLERS[p.Export] = export


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return x * self.scale
