"""Keeps its parameters in a persisting access window of the L2 cache, which a flush does not empty.

Attack surface: a flush of the caches between timed calls.
Why it fails: persisting lines are made ordinary ones before each flush.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>

void keep(torch::Tensor t) {
  cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1 << 20);
  cudaStreamAttrValue value = {};
  value.accessPolicyWindow.base_ptr = t.data_ptr();
  value.accessPolicyWindow.num_bytes = t.nbytes();
  value.accessPolicyWindow.hitRatio = 1.0f;
  value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaStreamSetAttribute(at::cuda::getCurrentCUDAStream(), cudaStreamAttributeAccessPolicyWindow, &value);
}
"""
extension = load_inline("window", cpp_sources="void keep(torch::Tensor);", cuda_sources=CUDA, functions=["keep"])


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        extension.keep(self.scale)
        return torch.relu(x * self.scale + self.bias)
