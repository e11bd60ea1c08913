"""The generators of a call are seeded as torch.manual_seed seeds them."""

import pytest
import torch

from grader.worker.conditions import seed_generators


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_random_numbers_are_those_of_pytorchs_own_function(device):
    def drawn(seed):
        seed(17)
        return [torch.rand(5), torch.randn(5, device=device), torch.randperm(9), torch.rand(3, device=device)]

    with torch.random.fork_rng(devices=[0] if device == "cuda" else []):
        ours, theirs = drawn(lambda seed: seed_generators(torch.device(device), seed)), drawn(torch.manual_seed)
    assert all(map(torch.equal, ours, theirs))
