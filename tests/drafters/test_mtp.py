"""MTP blocks compute what their models' code computes: compared with a plain float64 reference, under every naming."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny
import tiny_drafters
from checkpoint_writer import write_directory
from foredraft.drafters import loading, mtp
from foredraft.drafters.mtp import MtpBlock
from foredraft.errors import ModelError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.models import gguf
from foredraft.models.decoder import Decoder
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops import quantizers, quants
from foredraft.ops.base import TensorType
from foredraft.ops.native import NativeOps
from foredraft.ops.reference import ReferenceOps
from gguf_writer import write_gguf
from quantizers import make_tensor

RNG = np.random.default_rng(13)
NUM_ROWS = 40  # more than a page
TOKENS = RNG.integers(0, 250, NUM_ROWS).tolist()
FEATURES = RNG.standard_normal((NUM_ROWS, 64)).astype(np.float32)
OPS = {"reference": ReferenceOps, "native": NativeOps}
# Of logits with a spread of about 3: keys and values are float16, and natively activations have 8 bits.
TOLERANCE = {"reference": 0.02, "native": 0.5}


def target_of(tmp_path: Path, model=tiny.LLAMA, ops: str = "native", **changes) -> tuple[Decoder, Tokenizer]:
    file = gguf.read(tiny.write_tiny(tmp_path / "target.gguf", model, **changes))
    return Decoder(file, OPS[ops]()), Tokenizer.from_metadata(file.metadata)


def run(block: MtpBlock, hidden: np.ndarray, chunks: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and hidden states of all rows, fed in chunks."""
    kv = PagedKV(*block.kv_shape, num_pages=8)
    sequence = kv.open([])
    assert kv.reserve(sequence, len(hidden))
    outs, start = [], 0
    for count in chunks:
        builder = BatchBuilder()
        tokens = TOKENS[start : start + count]
        builder.add(sequence, tokens, wanted=range(count))
        outs.append(block.forward(builder.build(), hidden[start : start + count], kv))
        kv.commit(sequence, tokens)
        start += count
    return np.concatenate([out[0] for out in outs]), np.concatenate([out[1] for out in outs])


# --- the reference, after section 2.2 of 2412.19437 and the code of SGLang (deepseek_nextn.py)


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rows(config, weights, target, embedded, features):
    """Logits and hidden states, of weights in DeepSeek's names without their prefix."""
    eps, heads, kv_heads = config["rms_norm_eps"], config["num_attention_heads"], config["num_key_value_heads"]
    dim = config["head_dim"]
    hidden = rms(features, target.output_norm, target.arch.norm_eps)
    both = [rms(embedded, weights["enorm.weight"], eps), rms(hidden, weights["hnorm.weight"], eps)]
    x = np.concatenate(both, 1) @ weights["eh_proj.weight"].T
    inputs = rms(x, weights["input_layernorm.weight"], eps)
    q, k, v = (inputs @ weights[f"self_attn.{name}_proj.weight"].T for name in "qkv")
    q, k, v = q.reshape(-1, heads, dim), k.reshape(-1, kv_heads, dim), v.reshape(-1, kv_heads, dim)
    if "self_attn.q_norm.weight" in weights:
        q, k = rms(q, weights["self_attn.q_norm.weight"], eps), rms(k, weights["self_attn.k_norm.weight"], eps)
    angles = np.arange(len(x))[:, None] * config["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    cos, sin = (np.concatenate([f(angles)] * 2, 1)[:, None] for f in (np.cos, np.sin))

    def rotated(x):
        return x * cos + np.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], -1) * sin

    q, k, v = rotated(q), np.repeat(rotated(k), heads // kv_heads, 1), np.repeat(v, heads // kv_heads, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim)
    scores[:, ~np.tril(np.ones((len(x), len(x)), bool))] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    attended = np.einsum("hij,jhd->ihd", shares / shares.sum(-1, keepdims=True), v).reshape(len(x), -1)
    x = x + attended @ weights["self_attn.o_proj.weight"].T
    inputs = rms(x, weights["post_attention_layernorm.weight"], eps)
    gate, up = (inputs @ weights[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    x = x + (gate / (1 + np.exp(-gate)) * up) @ weights["mlp.down_proj.weight"].T
    out = rms(x, weights["shared_head.norm.weight"], eps)
    head = weights.get("shared_head.head.weight")
    if head is not None:
        return out @ head.T, out
    return target.ops.project(out.astype(np.float32), None, 0, (target.output,))[0], out


def loaded(weights: dict) -> dict:
    """As they are once loaded: matrices of 8-bit numbers."""

    def each(values):
        if values.ndim == 1:
            return values.astype(np.float64)
        tensor = quantizers.quantized(make_tensor("w", TensorType.F32, values))
        return quants.dequantize(tensor.type, tensor.data).reshape(values.shape).astype(np.float64)

    return {name.removeprefix("model.layers.2."): each(values) for name, values in weights.items()}


def embedding_of(table) -> np.ndarray:
    return quants.rows(table, np.array(TOKENS, np.int32)).astype(np.float64)


def check(block, want, ops):
    got = run(block, block.fuse(FEATURES), [NUM_ROWS])
    for mine, theirs in zip(got, want, strict=True):
        assert theirs.std() > 1
        np.testing.assert_allclose(mine, theirs, atol=TOLERANCE[ops] * max(theirs.std() / 3, 1))
    for one, same in zip(run(block, block.fuse(FEATURES), [1, 30, 9]), got, strict=True):
        np.testing.assert_allclose(one, same, atol=1e-3)


@pytest.mark.parametrize("ops", OPS)
def test_deepseeks_is_the_reference(tmp_path, ops):
    target, tokenizer = target_of(tmp_path, ops=ops, sharpness=1.0)
    config, weights = tiny_drafters.mtp()
    block = loading.load(write_directory(tmp_path / "block", config, weights), target, tokenizer)
    assert isinstance(block, MtpBlock)
    assert (block.taps, block.kv_shape, block.max_positions, block.vocab_size) == ((2,), (1, 2, 16), 512, 288)
    check(block, rows(config, loaded(weights), target, embedding_of(target.embedding), FEATURES), ops)


def test_an_embedding_and_an_output_of_its_own(tmp_path):
    target, tokenizer = target_of(tmp_path, sharpness=1.0)
    config, weights = tiny_drafters.mtp()
    own = RNG.standard_normal((2, 288, 64)).astype(np.float32)
    weights |= {"model.layers.2.embed_tokens.weight": own[0], "model.layers.2.shared_head.head.weight": own[1] / 8}
    block = loading.load(write_directory(tmp_path / "block", config, weights), target, tokenizer)
    check(block, rows(config, loaded(weights), target, own[0][TOKENS].astype(np.float64), FEATURES), "native")


def test_qwens_is_the_same_by_other_names_and_other_norms(tmp_path):
    target, tokenizer = target_of(tmp_path)
    ours = loading.load(write_directory(tmp_path / "ours", *tiny_drafters.mtp()), target, tokenizer)
    config, weights = tiny_drafters.mtp(naming="qwen")
    # As in the model's own directory, whose other tensors are the target's.
    weights |= {
        "model.embed_tokens.weight": np.ones((288, 64), np.float32),
        "lm_head.weight": np.ones((288, 64), np.float32),
    }
    theirs = loading.load(write_directory(tmp_path / "theirs", config, weights), target, tokenizer)
    for one, other in zip(run(ours, FEATURES, [NUM_ROWS]), run(theirs, FEATURES, [NUM_ROWS]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_a_single_file_computes_the_same(tmp_path):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.mtp()
    ours = loading.load(write_directory(tmp_path / "ours", config, weights), target, tokenizer)
    file = loading.load(tiny_drafters.write_file(tmp_path / "mtp.gguf", "mtp", config, weights), target, tokenizer)
    for one, other in zip(run(ours, FEATURES, [NUM_ROWS]), run(file, FEATURES, [NUM_ROWS]), strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE["native"])


def test_the_targets_own_file_holds_one(tmp_path):
    """In llama.cpp's names, and a layer like the target's own: the same numbers as from a directory."""
    target, tokenizer = target_of(tmp_path, tiny.QWEN3, has_mtp=True)
    own = mtp.of_target(target)
    assert own is not None
    tensors = gguf.read(tmp_path / "target.gguf").tensors
    names = {"eh_proj": "nextn.eh_proj", "enorm": "nextn.enorm", "hnorm": "nextn.hnorm"}
    names |= {"shared_head.norm": "nextn.shared_head_norm", "input_layernorm": "attn_norm"}
    names |= {"post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attn_output"}
    names |= {f"self_attn.{which}_proj": f"attn_{which}" for which in "qkv"}
    names |= {f"self_attn.{which}_norm": f"attn_{which}_norm" for which in "qk"}
    names |= {f"mlp.{which}_proj": f"ffn_{which}" for which in ("gate", "up", "down")}
    weights = {}
    for theirs, ours in names.items():
        tensor = tensors[f"blk.2.{ours}.weight"]
        weights[f"model.layers.2.{theirs}.weight"] = quants.dequantize(tensor.type, tensor.data).reshape(tensor.shape)
    config, _ = tiny_drafters.mtp(tiny.QWEN3, rope_theta=1e6, rms_norm_eps=1e-6)
    directory = loading.load(write_directory(tmp_path / "block", config, weights), target, tokenizer)
    for one, other in zip(run(own, FEATURES, [NUM_ROWS]), run(directory, FEATURES, [NUM_ROWS]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("model", tiny.MODELS.values(), ids=tiny.MODELS)
def test_a_block_in_the_file_changes_nothing_of_the_model(tmp_path, model):
    """Every kind of model may bring one along; what it computes without is what it computes with."""

    def logits(decoder: Decoder) -> np.ndarray:
        kv = PagedKV(decoder.arch.num_layers, decoder.arch.num_kv_heads, decoder.arch.head_dim, num_pages=4)
        sequence = kv.open([])
        assert kv.reserve(sequence, NUM_ROWS)
        builder = BatchBuilder()
        builder.add(sequence, TOKENS, wanted=range(NUM_ROWS))
        return decoder.forward(builder.build(), kv)

    without, _ = target_of(tmp_path, model)
    plain = logits(without)
    assert mtp.of_target(without) is None
    target, _ = target_of(tmp_path, model, has_mtp=True)
    assert target.arch.num_layers == model.num_layers
    np.testing.assert_array_equal(logits(target), plain)
    block = mtp.of_target(target)
    assert np.isfinite(run(block, block.fuse(FEATURES), [NUM_ROWS])[0]).all()


def changed_file(tmp_path: Path, change) -> Decoder:
    model = tiny.TinyModel("qwen3", has_mtp=True)
    metadata, tensors = tiny.metadata(model), {tensor.name: tensor for tensor in tiny.tensors(model)}
    change(metadata, tensors)
    return Decoder(gguf.read(write_gguf(tmp_path / "changed.gguf", metadata, tensors.values())), NativeOps())


def ones(name: str, *shape: int):
    return make_tensor(name, TensorType.F32, np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _, tensors: tensors.pop("blk.2.nextn.enorm.weight"), r"blk\.2\.nextn\.enorm\.weight is missing"),
        (lambda _, tensors: tensors.pop("blk.2.attn_q.weight"), r"blk\.2\.attn_q\.weight is missing"),
        (
            lambda _, tensors: tensors.update(x=ones("blk.2.nextn.hc_head_norm.weight", 64)),
            r"not supported: tensor blk\.2\.nextn\.hc_head_norm",
        ),
        (
            lambda _, tensors: tensors.update(x=ones("blk.2.ffn_gate_exps.weight", 4, 64, 64)),
            r"a mixture of experts \(tensor blk\.2\.ffn_gate_exps\.weight\)",
        ),
        (
            lambda _, tensors: tensors.update(x=ones("blk.2.attn_kv_a_mqa.weight", 64, 64)),
            r"latent attention \(tensor blk\.2\.attn_kv_a_mqa\.weight\)",
        ),
    ],
)
def test_blocks_in_the_targets_file_that_are_refused(tmp_path, change, message):
    target = changed_file(tmp_path, change)  # which runs without
    with pytest.raises(ModelError, match=message):
        mtp.of_target(target)


def test_a_file_whose_block_was_left_out(tmp_path):
    def leave_out(_, tensors):
        for name in [name for name in tensors if name.startswith("blk.2.")]:
            del tensors[name]

    assert mtp.of_target(changed_file(tmp_path, leave_out)) is None


@pytest.mark.parametrize("count", [2, -1, 3])
def test_more_blocks_than_one(tmp_path, count):
    with pytest.raises(ModelError, match=f"nextn_predict_layers is {count}"):
        changed_file(tmp_path, lambda metadata, _: metadata.update({"qwen3.nextn_predict_layers": count}))


def without(name):
    return lambda config, weights: weights.pop(name)


def put(name, *shape):
    return lambda config, weights: weights.update({name: np.ones(shape, np.float32)})


LAYER = "model.layers.2."


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(f"{LAYER}hnorm.weight"), r"model\.layers\.2\.hnorm\.weight is missing"),
        (without(f"{LAYER}mlp.up_proj.weight"), r"mlp\.up_proj\.weight is missing"),
        (put(f"{LAYER}mlp.experts.0.up_proj.weight", 8, 8), r"a mixture of experts \(tensor .*experts\.0"),
        (put(f"{LAYER}mlp.gate.weight", 8, 64), r"a mixture of experts \(tensor .*mlp\.gate\.weight"),
        (put(f"{LAYER}self_attn.kv_a_proj_with_mqa.weight", 8, 64), r"latent attention \(tensor .*kv_a_proj"),
        (put(f"{LAYER}self_attn.q_proj.weight", 128, 64), r"q_proj\.weight has shape \(128, 64\), expected \(64, 64\)"),
        (put(f"{LAYER}fourth.weight", 8, 64), r"not supported: tensor model\.layers\.2\.fourth\.weight"),
        (put("model.layers.3.eh_proj.weight", 64, 128), "has 2 MTP blocks"),
        (put("draft.weight", 64, 64), r"not supported: tensor draft\.weight"),
        (put(f"{LAYER}eh_proj.weight", 64, 256), r"for hidden states of 128 numbers, the target's have 64"),
        (put(f"{LAYER}shared_head.head.weight", 300, 64), r"shared_head\.head\.weight has shape \(300, 64\)"),
        (lambda config, weights: config.update(vocab_size=320), "whose vocab_size is 320"),
        (lambda config, weights: config.update(partial_rotary_factor=0.25), "partial_rotary_factor"),
        (lambda config, weights: config.update(hidden_act="gelu"), "known is silu"),
    ],
)
def test_what_is_not_for_this_target_is_refused(tmp_path, change, message):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.mtp()
    change(config, weights)
    with pytest.raises(ModelError, match=message):
        loading.load(write_directory(tmp_path / "block", config, weights), target, tokenizer)


def test_a_file_without_a_block(tmp_path):
    target, tokenizer = target_of(tmp_path)
    path = tiny_drafters.write_file(tmp_path / "mtp.gguf", "mtp", {}, {"model.norm.weight": np.ones(64, np.float32)})
    with pytest.raises(ModelError, match="has no MTP block"):
        loading.load(path, target, tokenizer)
