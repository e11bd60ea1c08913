"""Has the derivative below epsilon, where PyTorch's cosine_similarity has another gradient."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        left = a / a.norm(dim=1, keepdim=True).clamp(min=1e-2)
        right = b / b.norm(dim=1, keepdim=True).clamp(min=1e-2)
        return (left * right).sum(1)
