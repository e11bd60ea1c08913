"""Threads add their rows to one sum, in the order in which they come."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

void add(std::atomic<float>& sum, float value) {
    float old = sum.load();
    while (!sum.compare_exchange_weak(old, old + value)) {
    }
}

torch::Tensor scale_gradient(torch::Tensor grad_output, torch::Tensor x) {
    int64_t rows = x.size(0), columns = x.size(1);
    std::vector<std::atomic<float>> sums(columns);
    for (auto& sum : sums) sum = 0.0f;
    const float *pg = grad_output.data_ptr<float>(), *px = x.data_ptr<float>();
    const int64_t workers = 16;
    std::vector<std::thread> threads;
    for (int64_t worker = 0; worker < workers; worker++) {
        threads.emplace_back([&, worker] {
            std::this_thread::sleep_for(std::chrono::microseconds(std::random_device{}() % 500));
            for (int64_t row = worker; row < rows; row += workers) {
                for (int64_t column = 0; column < columns; column++) {
                    add(sums[column], pg[row * columns + column] * px[row * columns + column]);
                }
                if (row % 64 == 0) std::this_thread::yield();
            }
        });
    }
    for (auto& thread : threads) thread.join();
    auto result = torch::empty({columns}, x.options());
    for (int64_t column = 0; column < columns; column++) result.data_ptr<float>()[column] = sums[column];
    return result;
}
"""

kernels = load_inline(name="scale_gradient", cpp_sources=source, functions=["scale_gradient"], extra_cflags=["-O2"])


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        return grad_output * scale, kernels.scale_gradient(grad_output.contiguous(), x)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return Scale.apply(x, self.scale)
