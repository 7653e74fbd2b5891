#!/usr/bin/env python3
"""Times PyTorch's bf16 scaled_dot_product_attention on decode shapes: every backend, CUDA graph, cold L2, median.

    bench_sdpa.py SEQSxHEADSxKV_HEADSxDIMxTOKENS...

One query token per sequence over a contiguous cache; 256 MiB are read before each launch.  Prints, per shape
and backend, the median in microseconds and TB/s of the bf16 cache, then the best backend."""
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "default": None,
}
RUNS = 30


def attend(q, k, v, backend):
    if backend is None:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def record(q, k, v, backend):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            attend(q, k, v, backend)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attend(q, k, v, backend)
    return graph


def median(graph, flush):
    times = []
    for i in range(RUNS + 3):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.sum()
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1e3)
    return sorted(times[3:])[RUNS // 2]


def main():
    flush = torch.ones(32 << 20, dtype=torch.int64, device="cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for text in sys.argv[1:]:
        seqs, h, kv, d, n = map(int, text.split("x"))
        q = torch.randn(seqs, h, 1, d, dtype=torch.bfloat16, device="cuda")
        k = torch.randn(seqs, kv, n, d, dtype=torch.bfloat16, device="cuda")
        v = torch.randn(seqs, kv, n, d, dtype=torch.bfloat16, device="cuda")
        best = None
        for name, backend in BACKENDS.items():
            try:
                t = median(record(q, k, v, backend), flush)
            except RuntimeError as e:
                print(f"{text} {name}: no ({str(e).splitlines()[0][:60]})")
                continue
            print(f"{text} {name}: {t:.1f} us {2 * k.numel() * 2 / t / 1e6:.3f} TB/s")
            if best is None or t < best[0]:
                best = (t, name)
        print(f"{text} best: {best[1]} {best[0]:.1f} us")
        del q, k, v


main()
