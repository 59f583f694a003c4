#!/usr/bin/env python3
"""What PyTorch's attention takes for the problem that bench_attention_gpu times first: 28 heads, 4 KV heads,
head size 128, 3325 tokens, causal, f16. Medians in microseconds by backend; needs torch and a GPU.

usage: bench/attention_torch.py, before and after `bench_attention_gpu attention.so time` on the same machine.
"""
import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, HEADS, KV_HEADS, HEAD_SIZE, WARM, REPEATS = 3325, 28, 4, 128, 10, 50
torch.manual_seed(0)


def random(heads):
    return torch.randn(1, heads, TOKENS, HEAD_SIZE, device="cuda", dtype=torch.float16)


query, key, value = random(HEADS), random(KV_HEADS), random(KV_HEADS)


def once():
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3


print(torch.cuda.get_device_name(), "torch", torch.__version__)
for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
    with sdpa_kernel(backend):
        for _ in range(WARM):
            once()
        print("%-24s %.1f us" % (backend.name, sorted(once() for _ in range(REPEATS))[REPEATS // 2]))
