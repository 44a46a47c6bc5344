"""Types of the C++ module (csrc/module.cpp). Wrong shapes, dtypes and sizes raise ValueError or TypeError."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class Matrix:
    def __init__(
        self,
        type: int,
        outputs: int,
        inputs: int,
        data: NDArray[np.uint8],
        bias: NDArray[np.float32] | None = None,
        is_mapped: bool = False,
    ) -> None: ...
    @property
    def outputs(self) -> int: ...
    @property
    def inputs(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...

class Attention:
    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        rope_frequencies: NDArray[np.float32],
        is_interleaved: bool,
        window: int,
        q_norm: NDArray[np.float32] | None,
        k_norm: NDArray[np.float32] | None,
        norm_eps: float,
    ) -> None: ...

class Layer:
    def __init__(
        self,
        attention: Attention,
        attention_norm: NDArray[np.float32],
        query: Matrix,
        key: Matrix,
        value: Matrix,
        output: Matrix,
        attention_post_norm: NDArray[np.float32] | None,
        ffn_norm: NDArray[np.float32],
        gate: Matrix,
        up: Matrix,
        down: Matrix,
        ffn_post_norm: NDArray[np.float32] | None,
        activation: str,
        eps: float,
    ) -> None: ...

class Batch:
    def __init__(
        self,
        positions: NDArray[np.int32],
        sequences: NDArray[np.int32],
        slots: NDArray[np.int32],
        prefixes: NDArray[np.int32],
        ancestors: NDArray[np.int32],
        ancestor_offsets: NDArray[np.int32],
        page_tables: NDArray[np.int32],
    ) -> None: ...

def embed(type: int, table: NDArray[np.uint8], tokens: NDArray[np.int32], out: NDArray[np.float32]) -> None: ...
def project(
    x: NDArray[np.float32],
    norm: NDArray[np.float32] | None,
    eps: float,
    matrices: Sequence[Matrix],
    outs: Sequence[NDArray[np.float32]],
) -> None: ...
def accumulate(
    x: NDArray[np.float32], y: NDArray[np.float32], matrix: Matrix, norm: NDArray[np.float32] | None, eps: float
) -> None: ...
def feed_forward(
    x: NDArray[np.float32],
    norm: NDArray[np.float32],
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    activation: str,
    post_norm: NDArray[np.float32] | None,
    eps: float,
) -> None: ...
def attend(
    q: NDArray[np.float32],
    k: NDArray[np.float32],
    v: NDArray[np.float32],
    attention: Attention,
    keys: NDArray[np.float16],
    values: NDArray[np.float16],
    batch: Batch,
    out: NDArray[np.float32],
) -> None: ...
def forward(
    x: NDArray[np.float32], layer: Layer, keys: NDArray[np.float16], values: NDArray[np.float16], batch: Batch
) -> None: ...
def set_threads(threads: int) -> None: ...
def num_threads() -> int: ...
def set_isa(name: str) -> None: ...
def isa() -> str: ...
def available_isas() -> list[str]: ...
def truncate(
    logits: NDArray[np.float32],
    best: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    out: NDArray[np.float32],
) -> None: ...
def softmax(logits: NDArray[np.float32], best: int, temperature: float, out: NDArray[np.float64]) -> None: ...
def log_sum_exp(logits: NDArray[np.float32], best: int) -> float: ...
def highest(logits: NDArray[np.float32], count: int) -> list[int]: ...
def draw(logits: NDArray[np.float32], best: int, temperature: float, state: int) -> int: ...
def draw_from(law: NDArray[np.floating], best: int, state: int) -> int: ...
