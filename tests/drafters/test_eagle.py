"""EAGLE heads compute what their papers' code computes: compared with a plain float64 reference, row by row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tiny
import tiny_drafters
from checkpoint_writer import write_directory
from foredraft.drafters import checkpoint, loading, rotary
from foredraft.drafters.eagle import Eagle, Eagle3, EagleHead
from foredraft.errors import ModelError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.models import gguf
from foredraft.models.compatibility import tokens_sha256
from foredraft.models.decoder import Decoder
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops import quantizers, quants
from foredraft.ops.base import TensorType
from foredraft.ops.native import NativeOps
from foredraft.ops.reference import ReferenceOps
from quantizers import make_tensor

RNG = np.random.default_rng(7)
NUM_ROWS = 40  # more than a page
TOKENS = RNG.integers(0, 250, NUM_ROWS).tolist()
OPS = {"reference": ReferenceOps, "native": NativeOps}
# Of logits with a spread of about 6: keys and values are float16, and natively activations have 8 bits.
TOLERANCE = {"reference": 0.02, "native": 0.8}


def target_of(tmp_path: Path, ops: str = "native", **changes) -> tuple[Decoder, Tokenizer]:
    file = gguf.read(tiny.write_tiny(tmp_path / "target.gguf", **changes))
    return Decoder(file, OPS[ops]()), Tokenizer.from_metadata(file.metadata)


def cache(head: EagleHead) -> PagedKV:
    return PagedKV(*head.kv_shape, num_pages=8)


def run(head: EagleHead, hidden: np.ndarray, chunks: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and hidden states of all rows, fed in chunks."""
    kv = cache(head)
    sequence = kv.open([])
    assert kv.reserve(sequence, len(hidden))
    outs, start = [], 0
    for count in chunks:
        builder = BatchBuilder()
        tokens = TOKENS[start : start + count]
        builder.add(sequence, tokens, wanted=range(count))
        outs.append(head.forward(builder.build(), hidden[start : start + count], kv))
        kv.commit(sequence, tokens)
        start += count
    return np.concatenate([out[0] for out in outs]), np.concatenate([out[1] for out in outs])


# --- the reference, after the code of 2401.15077 and 2503.01840 (cnets1.py, cnets.py) and of speculators


def rms(x, weight, eps=1e-5):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def attention(config, weights, prefix, inputs):
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    q, k, v = (inputs @ weights[f"{prefix}self_attn.{name}_proj.weight"].T for name in "qkv")
    q, k, v = q.reshape(-1, heads, dim), k.reshape(-1, kv_heads, dim), v.reshape(-1, kv_heads, dim)
    angles = np.arange(len(inputs))[:, None] * config["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    cos, sin = (np.concatenate([f(angles)] * 2, 1)[:, None] for f in (np.cos, np.sin))

    def rotated(x):
        return x * cos + np.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], -1) * sin

    q, k = rotated(q), np.repeat(rotated(k), heads // kv_heads, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim)
    scores[:, ~np.tril(np.ones((len(inputs), len(inputs)), bool))] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    out = np.einsum("hij,jhd->ihd", shares, np.repeat(v, heads // kv_heads, 1))
    return out.reshape(len(inputs), -1) @ weights[f"{prefix}self_attn.o_proj.weight"].T


def mlp(weights, prefix, x):
    gate, up = (x @ weights[f"{prefix}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    return (gate / (1 + np.exp(-gate)) * up) @ weights[f"{prefix}mlp.down_proj.weight"].T


def layer(config, weights, prefix, inputs, residual):
    x = residual + attention(config, weights, prefix, inputs)
    return x + mlp(weights, prefix, rms(x, weights[f"{prefix}post_attention_layernorm.weight"]))


def float64(weights):
    """As they are once loaded: matrices of 8-bit numbers."""
    return {name: loaded(w).astype(np.float64) if w.dtype == np.float32 else w for name, w in weights.items()}


def loaded(values):
    tensor = quantizers.quantized(make_tensor("w", TensorType.F32, values))
    return quants.dequantize(tensor.type, tensor.data).reshape(values.shape)


def eagle3_fused(config, weights, features):
    if config.get("fc_norm"):
        parts = np.split(features, len(config["taps"]), 1)
        features = np.concatenate([rms(p, weights[f"fc_norm.{i}.weight"]) for i, p in enumerate(parts)], 1)
    if config.get("norm_before_fc"):
        features = rms(features, weights["input_norm.weight"])
    return features @ weights["fc.weight"].T


def eagle3_rows(config, weights, embedded, hidden):
    normed = rms(hidden, weights["midlayer.hidden_norm.weight"])
    inputs = np.concatenate([rms(embedded, weights["midlayer.input_layernorm.weight"]), normed], 1)
    x = layer(config, weights, "midlayer.", inputs, normed if config.get("norm_before_residual") else hidden)
    out = rms(x, weights["norm.weight"])
    return out @ weights["lm_head.weight"].T, out if config.get("norm_output") else x


def embedding_of(target: Decoder) -> np.ndarray:
    return quants.rows(target.embedding, np.array(TOKENS, np.int32)).astype(np.float64)


@pytest.mark.parametrize("ops", OPS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_before_residual": True, "norm_before_fc": True},
        {"fc_norm": True, "norm_output": True, "draft_vocab": 288, "taps": [1, 2]},
    ],
    ids=["plain", "norms", "3.1"],
)
def test_eagle3_is_the_reference(tmp_path, ops, changes):
    target, tokenizer = target_of(tmp_path, ops)
    config, weights = tiny_drafters.eagle3(**changes)
    head = loading.load(write_directory(tmp_path / "head", config, weights), target, tokenizer)
    assert isinstance(head, Eagle3)
    assert head.taps == tuple(config["taps"])
    features = RNG.standard_normal((NUM_ROWS, len(head.taps) * 64)).astype(np.float32)
    fused = eagle3_fused(config, float64(weights), features.astype(np.float64))
    np.testing.assert_allclose(head.fuse(features), fused, atol=TOLERANCE[ops] / 3)
    logits, hidden = eagle3_rows(config, float64(weights), embedding_of(target), fused)
    got = run(head, head.fuse(features), [NUM_ROWS])
    assert logits.std() > 3
    np.testing.assert_allclose(got[0], logits, atol=TOLERANCE[ops])
    np.testing.assert_allclose(got[1], hidden, atol=TOLERANCE[ops])
    for one, same in zip(run(head, head.fuse(features), [1, 30, 9]), got, strict=True):
        np.testing.assert_allclose(one, same, atol=1e-4)
    if "d2t" in weights:
        np.testing.assert_array_equal(head.target_ids, np.flatnonzero(weights["t2d"]))
    else:
        assert head.target_ids is None


@pytest.mark.parametrize("ops", OPS)
def test_eagle1_is_the_reference(tmp_path, ops):
    target, tokenizer = target_of(tmp_path, ops, sharpness=1.0)
    config, weights = tiny_drafters.eagle()
    head = loading.load(write_directory(tmp_path / "head", config, weights), target, tokenizer)
    assert isinstance(head, Eagle)
    assert head.taps == (2,)
    embedding, weights = weights["embed_tokens.weight"].astype(np.float64), float64(weights)
    features = RNG.standard_normal((NUM_ROWS, 64)).astype(np.float32)
    # What the target's output matrix reads: its hidden states after the last norm.
    normed = rms(features.astype(np.float64), target.output_norm, 1e-6)
    np.testing.assert_allclose(head.fuse(features), normed, atol=1e-4)
    inputs = np.concatenate([embedding[TOKENS], normed], 1)
    x = inputs @ weights["fc.weight"].T + weights["fc.bias"]
    hidden = layer(config, weights, "layers.0.", x, x)
    got = run(head, head.fuse(features), [25, 15])
    np.testing.assert_allclose(got[1], hidden, atol=TOLERANCE[ops])
    [logits] = target.ops.project(hidden.astype(np.float32), None, 0, (target.output,))
    np.testing.assert_allclose(got[0], logits, atol=TOLERANCE[ops])


def test_a_single_file_computes_the_same(tmp_path):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.eagle3()
    directory = loading.load(write_directory(tmp_path / "head", config, weights), target, tokenizer)
    digest = {"tokenizer_sha256": tokens_sha256(tokenizer), "num_target_layers": 2}
    path = tiny_drafters.write_file(tmp_path / "head.gguf", "eagle3", {**config, **digest}, weights)
    file = loading.load(path, target, tokenizer)
    hidden = RNG.standard_normal((NUM_ROWS, 64)).astype(np.float32)
    for one, other in zip(run(directory, hidden, [40]), run(file, hidden, [40]), strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE["native"])
    np.testing.assert_array_equal(directory.target_ids, file.target_ids)


def test_layers_may_be_called_as_in_speculators(tmp_path):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.eagle3()
    layer_config = {key: config.pop(key) for key in tiny_drafters.CONFIG if key != "architectures"}
    config |= {"transformer_layer_config": {**layer_config, "model_type": "llama"}, "speculators_model_type": "eagle3"}
    weights = {name.replace("midlayer.", "layers.0."): w for name, w in weights.items()}
    head = loading.load(write_directory(tmp_path / "head", config, weights), target, tokenizer)
    assert isinstance(head, Eagle3)
    assert head.max_positions == 512


@pytest.mark.parametrize(
    ("config", "taps"),
    [
        ({"taps": [0, 4, 12]}, (0, 4, 12)),
        ({}, (2, 6, 9)),
        ({"eagle_aux_hidden_state_layer_ids": [2, 6, 11]}, (2, 6, 11)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 10]}}, (2, 6, 11)),
    ],
)
def test_which_hidden_states_are_read(tmp_path, config, taps):
    target, tokenizer = target_of(tmp_path, num_layers=12)
    own, weights = tiny_drafters.eagle3()
    head = loading.load(write_directory(tmp_path / "head", {**own, "taps": None, **config}, weights), target, tokenizer)
    assert head.taps == taps


def without(name):
    return lambda config, weights: weights.pop(name)


def put(name, values):
    return lambda config, weights: weights.update({name: values})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("midlayer.mlp.up_proj.weight"), r"midlayer\.mlp\.up_proj\.weight is missing"),
        (without("norm.weight"), r"norm\.weight is missing"),
        (put("layers.1.mlp.up_proj.weight", np.ones((32, 32), np.float32)), r"not supported: tensor layers\.1\.mlp"),
        (put("markov_w1", np.arange(3)), "not supported: tensor markov_w1"),
        (put("fc.weight", np.ones((64, 128), np.float32)), "another hidden size or reads another number of layers"),
        (put("lm_head.weight", np.ones((96, 32), np.float32)), r"lm_head\.weight has shape \(96, 32\)"),
        (put("d2t", np.zeros(95, np.int64)), "d2t of shape"),
        (put("d2t", np.full(96, 193)), "does not lead to 96 different"),
        (put("d2t", -np.arange(96)), "does not lead to 96 different"),
        (put("t2d", np.ones(288, np.bool_)), "marks other tokens"),
        (lambda config, weights: (weights.pop("d2t"), weights.pop("t2d")), "no d2t to say which"),
        (lambda config, weights: config.update(vocab_size=320), "whose vocab_size is 320; this target's is 288"),
        (lambda config, weights: config.update(target_hidden_size=128), "whose target_hidden_size is 128"),
        (lambda config, weights: config.update(num_target_layers=3), "whose num_target_layers is 3"),
        (lambda config, weights: config.update(tokenizer_sha256="0" * 64), "another tokenizer"),
        (lambda config, weights: config.update(taps=[0, 1, 3]), "this target has 2"),
        (lambda config, weights: config.update(taps=[2, 1, 0]), "must ascend"),
        (lambda config, weights: config.update(num_hidden_layers=2), "heads of one layer are run"),
        (lambda config, weights: config.update(hidden_act="gelu"), "known is silu"),
        (lambda config, weights: config.update(num_key_value_heads=3), "do not fit together"),
        (lambda config, weights: config.update(rope_scaling={"rope_type": "yarn"}), "scales positions as 'yarn'"),
        (lambda config, weights: config.update(rope_theta=-1.0), "must be a number above 0"),
        (lambda config, weights: config.update(rope_scaling={"type": "linear", "factor": "x"}), "as factor"),
    ],
)
def test_what_is_not_for_this_target_is_refused(tmp_path, change, message):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.eagle3()
    change(config, weights)
    with pytest.raises(ModelError, match=message):
        loading.load(write_directory(tmp_path / "head", config, weights), target, tokenizer)


def test_a_tokenizer_beside_the_head_is_compared(tmp_path):
    target, tokenizer = target_of(tmp_path)
    path = tiny_drafters.write_eagle3(tmp_path / "head")
    for tokens, is_same in ((tokenizer.tokens, True), (tokenizer.tokens[::-1], False)):
        vocabulary = {text: id for id, text in enumerate(tokens)}
        (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
        if is_same:
            loading.load(path, target, tokenizer)
        else:
            with pytest.raises(ModelError, match=r"differs from this target's tokenizer in 288 tokens \(0 is"):
                loading.load(path, target, tokenizer)
    (path / "tokenizer.json").write_text('{"model": []}')
    loading.load(path, target, tokenizer)


def test_an_eagle1_head_of_another_hidden_size(tmp_path):
    target, tokenizer = target_of(tmp_path)
    with pytest.raises(ModelError, match="hidden size 128, this one has 64"):
        loading.load(tiny_drafters.write_eagle(tmp_path / "head", tiny.TinyModel(hidden=128)), target, tokenizer)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_scaled_positions(tmp_path, key):
    def frequencies(table):
        config = {**tiny_drafters.CONFIG, key: table}
        return rotary.frequencies(checkpoint.Checkpoint(tmp_path, "eagle3", config, {}, {}), 16)

    plain = frequencies({})
    np.testing.assert_allclose(plain, 10_000.0 ** (-np.arange(8) / 8), rtol=1e-6)
    np.testing.assert_allclose(frequencies({"rope_type": "linear", "factor": 4.0}), plain / 4)
    llama = frequencies(
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 1024,
        }
    )
    turns = 1024 * plain / (2 * np.pi)
    np.testing.assert_allclose(llama[turns > 4], plain[turns > 4])
    np.testing.assert_allclose(llama[turns < 1], plain[turns < 1] / 8)
    between = (turns > 1) & (turns < 4)
    assert between.any()
    assert ((llama[between] < plain[between]) & (llama[between] > plain[between] / 8)).all()
