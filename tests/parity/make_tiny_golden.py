"""Writes ../data/parity_tiny.npz: what transformers computes with the tiny models of parity_tiny.py.

    PYTHONPATH=src:tests python tests/parity/make_tiny_golden.py

Needs torch and transformers; the file says which versions made it. Keys and values are rounded to half precision, as
foredraft's cache keeps them, so that everything else can be compared tightly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import parity_tiny as tiny
import torch
import transformers
from transformers import DynamicCache

GOLDEN = Path(__file__).parents[1] / "data" / "parity_tiny.npz"
KINDS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
}


class HalfCache(DynamicCache):
    """Keeps keys and values at half precision."""

    def update(self, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().update(keys.half().float(), values.half().float(), *args, **kwargs)


def config(case: tiny.TinyModel) -> transformers.PreTrainedConfig:
    rope = {"rope_theta": case.rope_base, **case.rope}
    values: dict[str, Any] = {
        "vocab_size": tiny.VOCAB,
        "hidden_size": tiny.HIDDEN,
        "intermediate_size": tiny.FFN,
        "num_hidden_layers": case.num_layers,
        "num_attention_heads": case.num_heads,
        "num_key_value_heads": case.num_kv_heads,
        "head_dim": case.head_dim,
        "max_position_embeddings": tiny.CONTEXT,
        "rms_norm_eps": tiny.EPS,
        "tie_word_embeddings": case.is_tied,
        "rope_parameters": rope,
        "attn_implementation": "eager",
    }
    if case.architecture == "gemma3":
        local = {"rope_type": "default", "rope_theta": 10_000.0}
        values |= {
            "rope_parameters": {"full_attention": rope, "sliding_attention": local},
            "sliding_window": case.window,
            "query_pre_attn_scalar": case.head_dim,
        }
    return KINDS[case.architecture][0](**values)


@torch.no_grad()
def logits(name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    case = tiny.CASES[name]
    made = config(case)
    model = KINDS[case.architecture][1](made).eval().float()
    state = {key: torch.from_numpy(value) for key, value in tiny.weights(name).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= ({"lm_head.weight"} if case.is_tied else set()), missing
    tokens = torch.from_numpy(tiny.prompt(name)).long()[None]
    return model(tokens, cache=HalfCache(config=made)).logits[0, :: tiny.ROW_STEP].numpy()


def main() -> None:
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__}"
    np.savez_compressed(GOLDEN, made_by=made_by, **{name: logits(name) for name in tiny.CASES})
    print(f"{GOLDEN}: {GOLDEN.stat().st_size} bytes, {made_by}")


if __name__ == "__main__":
    main()
