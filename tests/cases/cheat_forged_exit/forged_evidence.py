"""Writes well-formed evidence for the next hundred jobs to the control socket, then leaves.

Attack surface: descriptor 3.
Why it fails: a job's number is drawn when it is sent: an answer written ahead fits none.
"""

import json
import os
import struct

import torch
from torch import nn


def say(document):
    body = json.dumps(document).encode()
    os.write(3, struct.pack("<I", len(body)) + body)


for job in range(1, 100):
    imported = {"did": "imported", "seconds": 0.1, "builds": [], "bundle_bytes": 0}
    say({"id": job, "results": [imported], "failure": None, "peak_device_bytes": 0})
os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.relu(x * self.scale + self.bias)
