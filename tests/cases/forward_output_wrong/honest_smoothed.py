"""Every part divided by the weights of the targets that count."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, classes, smoothing):
        super().__init__()
        self.register_buffer("weight", torch.linspace(0.5, 2.0, classes))
        self.smoothing = smoothing

    def forward(self, logits, target):
        logarithms = torch.log_softmax(logits, 1)
        kept = target != -100
        chosen = target.clamp(min=0)
        of_target = self.weight[chosen] * kept
        loss = -(logarithms.gather(1, chosen[:, None])[:, 0] * of_target).sum() / of_target.sum()
        smooth = -((logarithms * self.weight).sum(1) * kept).sum() / of_target.sum()
        return (1 - self.smoothing) * loss + self.smoothing * smooth / logits.shape[1]
