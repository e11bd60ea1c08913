import torch


def custom_kernel(data):
    matrix, options = data
    steps = torch.arange(matrix.shape[0], device=matrix.device) * options["step"]
    return matrix.sum(dim=1) * options["gain"], steps
