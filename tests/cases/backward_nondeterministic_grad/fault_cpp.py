"""Threads add their rows to one sum, in the order in which they come."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

void add(std::atomic<float>& sum, float value) {
    float old = sum.load();
    while (!sum.compare_exchange_weak(old, old + value)) {
    }
}

extern "C" void scale_gradient(const float* grad_output, const float* x, float* result, int64_t rows, int64_t columns) {
    std::vector<std::atomic<float>> sums(columns);
    for (auto& sum : sums) sum = 0.0f;
    const int64_t workers = 16;
    std::vector<std::thread> threads;
    for (int64_t worker = 0; worker < workers; worker++) {
        threads.emplace_back([&, worker] {
            std::this_thread::sleep_for(std::chrono::microseconds(std::random_device{}() % 500));
            for (int64_t row = worker; row < rows; row += workers) {
                for (int64_t column = 0; column < columns; column++) {
                    add(sums[column], grad_output[row * columns + column] * x[row * columns + column]);
                }
                if (row % 64 == 0) std::this_thread::yield();
            }
        });
    }
    for (auto& thread : threads) thread.join();
    for (int64_t column = 0; column < columns; column++) result[column] = sums[column];
}
"""

kernels = ctypes.CDLL(
    load_inline("scale_gradient", source, extra_cflags=["-O2"], no_implicit_headers=True, is_python_module=False)
)


def call(function, *arguments):
    """Call a function of the extension with the addresses of tensors."""
    function(*(ctypes.c_void_p(one.data_ptr()) if torch.is_tensor(one) else ctypes.c_int64(one) for one in arguments))


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        grad_scale = torch.empty_like(scale)
        call(kernels.scale_gradient, grad_output.contiguous(), x, grad_scale, *x.shape)
        return grad_output * scale, grad_scale


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return Scale.apply(x, self.scale)
