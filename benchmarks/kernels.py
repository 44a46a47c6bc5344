"""Times matrix products and attention of the native op set beside the machine's read bandwidth, measured in the same
run, and the sampler on one row.

    python benchmarks/kernels.py [--threads N] [--rows 1 4 8] [--match q6_k] [--repeats N]

Weights are random bytes; enough copies of a matrix (layers of a cache) are walked through that none is left in the
processor's caches. Logits are normal, with a spread like a model's. A figure is that of the fastest call, since other
programs may share the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from foredraft import _native
from foredraft.core import SamplingParams
from foredraft.governor.bandwidth import WORKING_SET, read_bandwidth, seconds
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.ops.base import BLOCKS, AttentionSpec, Tensor, TensorType
from foredraft.ops.native import NativeOps
from foredraft.sampling.processors import log_probabilities, probabilities, process
from foredraft.sampling.sampler import choose

SHAPES = [
    ("1.5B gate", TensorType.Q4_K, 8960, 1536),
    ("1.5B down", TensorType.Q4_K, 1536, 8960),
    ("1.5B down", TensorType.Q6_K, 1536, 8960),
    ("1.5B output", TensorType.Q6_K, 151936, 1536),
    ("0.5B gate", TensorType.Q5_0, 4864, 896),
    ("0.5B output", TensorType.Q8_0, 151936, 896),
    ("SmolLM2 gate", TensorType.Q4_1, 1536, 576),
]
HEADS = [("1.5B attention", 12, 2, 128), ("SmolLM2 attention", 9, 3, 64)]  # query heads, key-value heads, head_dim
CONTEXT = 1024
VOCABULARY = 151936
SAMPLING = [
    ("greedy", SamplingParams()),
    ("temperature 0.8", SamplingParams(temperature=0.8)),
    ("temperature 0.8, top-p 0.9", SamplingParams(temperature=0.8, top_p=0.9)),
    ("temperature 0.8, top-k 50", SamplingParams(temperature=0.8, top_k=50)),
    ("temperature 0.8, min-p 0.05", SamplingParams(temperature=0.8, min_p=0.05)),
]


def random_tensor(kind: TensorType, outputs: int, inputs: int) -> Tensor:
    length, size = BLOCKS[kind]
    data: NDArray[np.uint8] = np.random.default_rng(0).integers(0, 256, outputs * inputs // length * size, np.uint8)
    return Tensor("random", kind, (outputs, inputs), data)


def measure(ops: NativeOps, kind: TensorType, shape: tuple[int, int], all_rows: Sequence[int], repeats: int) -> None:
    tensor = random_tensor(kind, *shape)
    copies = max(1, WORKING_SET // len(tensor.data))
    matrices = [ops.matrix(tensor) for _ in range(copies)]
    num_bytes, one_row = matrices[0].num_bytes, None
    print(
        f"  {num_bytes / 1e6:.1f} MB, {100 * num_bytes / len(tensor.data) - 100:+.1f}% of the file's, {copies} copies"
    )
    for rows in all_rows:
        x = np.random.default_rng(1).standard_normal((rows, shape[1])).astype(np.float32)
        outs = [np.empty((rows, shape[0]), np.float32)]

        fastest = min(
            seconds(partial(_native.project, x, None, 0.0, [matrix], outs))
            for _ in range(repeats if rows <= 16 else 1)
            for matrix in matrices
        )
        one_row = one_row or fastest
        gigabytes, gigaops = num_bytes / fastest / 1e9, 2 * rows * shape[0] * shape[1] / fastest / 1e9
        print(
            f"  {rows:4d} rows {fastest * 1e3:9.3f} ms  x{fastest / one_row:6.2f}"
            f"  {gigabytes:6.1f} GB/s  {gigaops:6.0f} GOP/s"
        )


def measure_attention(ops: NativeOps, heads: int, kv_heads: int, dim: int, all_rows: Sequence[int]) -> None:
    num_bytes = 2 * 2 * CONTEXT * kv_heads * dim
    kv = PagedKV(WORKING_SET // num_bytes, kv_heads, dim, CONTEXT // 32 + 8)
    random = np.random.default_rng(0)
    for layer in kv.layers:
        layer.keys[:] = random.standard_normal(layer.keys.shape, np.float32)
        layer.values[:] = random.standard_normal(layer.values.shape, np.float32)
    sequence = kv.open([])
    kv.reserve(sequence, CONTEXT + max(all_rows))
    kv.commit(sequence, range(CONTEXT))
    frequencies = np.ones(dim // 2, np.float32)
    spec = AttentionSpec(heads, kv_heads, dim, dim**-0.5, frequencies, False, 0, None, None, 0.0)
    for rows in all_rows:
        builder = BatchBuilder()
        builder.add(sequence, range(rows))
        batch = builder.build()
        q, k, v = (random.standard_normal((rows, n * dim), np.float32) for n in (heads, kv_heads, kv_heads))
        # The layers are walked through in turn, so a layer's time is that of memory.
        fastest = min(seconds(partial(ops.attend, q, k, v, spec, layer, batch)) for layer in kv.layers)
        gigaflops = 4 * rows * CONTEXT * heads * dim / fastest / 1e9
        print(
            f"  {rows:4d} rows {fastest * 1e3:9.3f} ms  {num_bytes / fastest / 1e9:6.1f} GB/s  {gigaflops:6.0f} GFLOP/s"
        )


def measure_sampling(repeats: int) -> None:
    logits = np.random.default_rng(0).standard_normal(VOCABULARY).astype(np.float32) * np.float32(2.5)

    def sample(params: SamplingParams) -> None:
        choose(process(logits, params, [], [], []), params.temperature, 0, 0)

    calls = [(name, partial(sample, params)) for name, params in SAMPLING]
    calls.append(("log probabilities, top 20", partial(log_probabilities, logits, 0, 20)))
    calls.append(("law at temperature 0.8", partial(probabilities, logits, 0.8)))
    for name, call in calls:
        print(f"  {name:28} {min(seconds(call) for _ in range(10 * repeats)) * 1e3:7.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 128])
    parser.add_argument("--match", default="", help="only matrices whose name or type contains this")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    ops = NativeOps(options.threads)
    print(f"instruction set {_native.isa()}, {_native.num_threads()} threads")
    for name, kind, outputs, inputs in SHAPES:
        if options.match.lower() not in f"{name} {kind.name}".lower():
            continue
        bandwidth = read_bandwidth(_native.num_threads(), options.repeats)
        print(f"{name} {outputs} x {inputs} {kind.name}; reading memory {bandwidth / 1e9:.1f} GB/s")
        measure(ops, kind, (outputs, inputs), options.rows, options.repeats)
    for name, *sizes in HEADS:
        if options.match.lower() in name.lower():
            print(f"{name}, context {CONTEXT}")
            measure_attention(ops, *sizes, [rows for rows in options.rows if rows <= 32])
    if options.match.lower() in "sampling":
        print(f"sampling, a row of {VOCABULARY} logits")
        measure_sampling(options.repeats)


if __name__ == "__main__":
    main()
