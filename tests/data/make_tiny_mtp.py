"""Writes tiny_mtp.gguf beside this file: a tiny model with an MTP block that is worth something, trained from scratch.

    PYTHONPATH=src:tests python tests/data/make_tiny_mtp.py

Minutes on two cores. The model learns texts that `text` makes: sums, loops, sentences and tables from few templates.
Its block is then trained as `foredraft train mtp` trains one, on the model's own continuations, and put into its file.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tiny
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops.base import TensorType
from foredraft.train.collect import Collector
from foredraft.train.head import numpy_of
from foredraft.train.loop import Schedule, Trainer
from foredraft.train.mtp import Mtp
from foredraft.train.prompts import TrainingPrompt
from foredraft.train.reader import Reader
from foredraft.train.target import TargetWeights
from gguf_writer import write_gguf
from quantizers import make_tensor

MODEL = tiny.TinyModel("qwen3", hidden=64, ffn=192, num_heads=4, head_dim=16, tied=True)
NUM_TEXTS, STEPS, BATCH, LENGTH = 6000, 500, 16, 96
OUT = Path(__file__).with_name("tiny_mtp.gguf")
NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal")
THINGS = ("apple", "book", "coin", "drum", "egg", "fork", "hat", "key", "lamp", "nut")
VERBS = ("finds", "buys", "sells", "paints", "drops", "keeps")
PLACES = ("in the garden", "on the train", "at the market", "near the river")


def text(rng: random.Random) -> str:
    """One line or a few, of five kinds."""
    kind = rng.randrange(5)
    if kind == 0:
        a, b = rng.randrange(50), rng.randrange(50)
        return f"{a} + {b} = {a + b}, and {b} + {a} = {a + b}.\n"
    if kind == 1:
        name, thing = rng.choice("abcxyz"), rng.choice(THINGS)
        return f'for {name} in range({rng.randrange(20)}):\n    print({name}, "{thing}")\n'
    if kind == 2:
        name, verb, thing = rng.choice(NAMES), rng.choice(VERBS), rng.choice(THINGS)
        return f"{name} {verb} the {thing} {rng.choice(PLACES)}. Then {name} {verb} the other {thing}.\n"
    if kind == 3:
        first = rng.randrange(60)
        return f"count: {', '.join(str(first + n) for n in range(8))}\n"
    name, thing, count = rng.choice(NAMES), rng.choice(THINGS), rng.randrange(2, 20)
    return f'{{"name": "{name}", "thing": "{thing}", "count": {count}}}\n'


class Layer(nn.Module):
    """One layer of a Qwen3, in the names of its file."""

    def __init__(self) -> None:
        super().__init__()
        m = MODEL

        def small(outputs: int, inputs: int, gain: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.randn(outputs, inputs) * gain / inputs**0.5)

        def ones(size: int) -> nn.Parameter:
            return nn.Parameter(torch.ones(size))

        self.attn_norm, self.ffn_norm = ones(m.hidden), ones(m.hidden)
        self.attn_q_norm, self.attn_k_norm = ones(m.head_dim), ones(m.head_dim)
        self.attn_q = small(m.num_heads * m.head_dim, m.hidden)
        self.attn_k, self.attn_v = (small(m.num_kv_heads * m.head_dim, m.hidden) for _ in range(2))
        self.attn_output = small(m.hidden, m.num_heads * m.head_dim, 0.3)
        self.ffn_gate, self.ffn_up = small(m.ffn, m.hidden), small(m.ffn, m.hidden)
        self.ffn_down = small(m.hidden, m.ffn, 0.3)

    def forward(self, x: Tensor) -> Tensor:
        h = rms(x, self.attn_norm)
        q, k, v = (
            (h @ w.T).unflatten(-1, (-1, MODEL.head_dim)).transpose(1, 2)
            for w in (self.attn_q, self.attn_k, self.attn_v)
        )
        q, k = rotated(rms(q, self.attn_q_norm)), rotated(rms(k, self.attn_k_norm))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + attended.transpose(1, 2).flatten(2) @ self.attn_output.T
        h = rms(x, self.ffn_norm)
        return x + (F.silu(h @ self.ffn_gate.T) * (h @ self.ffn_up.T)) @ self.ffn_down.T


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token_embd = nn.Parameter(torch.randn(MODEL.vocab_size, MODEL.hidden) * 0.05)
        self.blk = nn.ModuleList(Layer() for _ in range(MODEL.num_layers))
        self.output_norm = nn.Parameter(torch.ones(MODEL.hidden))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embd[tokens]
        for layer in self.blk:
            x = layer(x)
        return rms(x, self.output_norm) @ self.token_embd.T


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def rotated(x: Tensor) -> Tensor:
    """x: [..., positions, head_dim]."""
    half = MODEL.head_dim // 2
    angles = torch.arange(x.shape[-2])[:, None] * MODEL.rope_base ** (-torch.arange(half) / half)
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()], -1)


def train_model(stream: Tensor) -> Model:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, STEPS, pct_start=0.1)
    for step in range(STEPS):
        starts = torch.randint(len(stream) - LENGTH - 1, (BATCH,))
        rows = torch.stack([stream[start : start + LENGTH + 1] for start in starts])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}", file=sys.stderr)
    return model


def stored(name: str, values: np.ndarray) -> Any:
    """As a tensor of a file: matrices with 8 bits."""
    return make_tensor(f"{name}.weight", TensorType.Q8_0 if values.ndim == 2 else TensorType.F32, values)


def in_file(block: Mtp) -> dict[str, np.ndarray]:
    """The block's weights by their names in its target's file."""
    places = {
        "enorm": "nextn.enorm",
        "hnorm": "nextn.hnorm",
        "eh_proj": "nextn.eh_proj",
        "norm": "nextn.shared_head_norm",
    }
    places |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "o_proj": "attn_output"}
    places |= {f"{name}_proj": f"attn_{name}" for name in "qkv"} | {
        f"{name}_norm": f"attn_{name}_norm" for name in "qk"
    }
    places |= {f"{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")}
    return {f"blk.{MODEL.num_layers}.{place}": numpy_of(getattr(block, name)) for name, place in places.items()}


def main() -> None:
    torch.manual_seed(0)
    rng, metadata = random.Random(0), tiny.metadata(MODEL)
    del metadata["tokenizer.chat_template"]  # it writes on, and does not talk
    tokenizer = Tokenizer.from_metadata(metadata)
    model = train_model(torch.tensor([token for _ in range(NUM_TEXTS) for token in tokenizer.encode(text(rng))]))
    tensors = [stored(name, numpy_of(values)) for name, values in model.named_parameters()]
    with tempfile.TemporaryDirectory() as folder:
        target, data = str(write_gguf(Path(folder) / "target.gguf", metadata, tensors)), Path(folder) / "data"
        prompts = [
            TrainingPrompt("text", ({"role": "user", "content": text(rng)},), "generated", "") for _ in range(500)
        ]
        Collector(target, data, max_tokens=96).run(prompts, None, lambda _: None)
        reader, weights = Reader(data, 512, 0), TargetWeights.read(target)
        block = Mtp(weights, np.arange(MODEL.vocab_size, dtype=np.int32), 3)
        block.start(reader.epoch(0))
        schedule = Schedule(epochs=3, learning_rate=3e-3, interval=40)
        Trainer(block, reader, schedule, Path(folder)).run(lambda point: print(point, file=sys.stderr))
    metadata |= {"qwen3.block_count": MODEL.num_layers + 1, "qwen3.nextn_predict_layers": 1}
    write_gguf(OUT, metadata, [*tensors, *(stored(name, values) for name, values in in_file(block).items())])


if __name__ == "__main__":
    main()
