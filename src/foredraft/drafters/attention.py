"""A drafter's attention as Hugging Face's config.json describes it."""

from __future__ import annotations

from foredraft.core import FloatArray
from foredraft.drafters import rotary
from foredraft.drafters.checkpoint import Checkpoint
from foredraft.models.gguf_cursor import fail
from foredraft.ops.base import AttentionSpec


def spec(checkpoint: Checkpoint, eps: float, q_norm: FloatArray | None, k_norm: FloatArray | None) -> AttentionSpec:
    """Of one layer that sees every position.

    eps, q_norm, k_norm: of its norms, see `AttentionSpec`.

    Raises:
        ModelError: a value is missing or makes no sense, or there is a feature that is not supported.
    """
    heads = checkpoint.size("num_attention_heads")
    kv_heads = checkpoint.size("num_key_value_heads", heads)
    head_dim = checkpoint.size("head_dim", max(checkpoint.size("hidden_size") // heads, 1))
    if heads % kv_heads or head_dim % 2:
        fail(checkpoint.path, f"has {heads} heads and {kv_heads} KV heads of {head_dim}, which do not fit together")
    if checkpoint.get("partial_rotary_factor", float, 1.0) != 1:
        fail(checkpoint.path, "rotates parts of its heads only (partial_rotary_factor), which is not supported")
    return AttentionSpec(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope_frequencies=rotary.frequencies(checkpoint, head_dim),
        is_interleaved=False,
        q_norm=q_norm,
        k_norm=k_norm,
        norm_eps=eps,
    )
