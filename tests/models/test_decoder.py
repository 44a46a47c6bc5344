"""The decoder on tiny files of every architecture: however rows are cut into passes, their logits are the same."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

import tiny
from foredraft import ops
from foredraft.errors import ModelError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.models import gguf
from foredraft.models.decoder import Decoder
from foredraft.ops.base import Ops, Tensor, TensorType
from foredraft.ops.native import NativeOps
from gguf_writer import write_gguf
from quantizers import make_tensor

TOKENS = [int(token) for token in np.random.default_rng(0).integers(0, 256, 50)]
TREE = [-1, 0, 0, 1, 2, 2, -1, 6]
TREE_TOKENS = [int(token) for token in np.random.default_rng(1).integers(0, 256, len(TREE))]


@pytest.fixture(scope="module", params=tiny.MODELS)
def path(request, tmp_path_factory):
    return tiny.write_tiny(tmp_path_factory.mktemp("tiny") / "model.gguf", tiny.MODELS[request.param])


@pytest.fixture(params=ops.OPS)
def decoder(request, path):
    return Decoder(gguf.read(path), ops.create(request.param, 2))


def same(decoder: Decoder, found: np.ndarray, wanted: np.ndarray) -> None:
    """Bits for native, which promises them; BLAS may add up in another order, which a near tie of two half-precision
    keys or values can turn into 2**-11 of a logit."""
    if decoder.ops.name == "native":
        assert np.array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-2)


def cache(decoder: Decoder) -> PagedKV:
    arch = decoder.arch
    return PagedKV(arch.num_layers, arch.num_kv_heads, arch.head_dim, num_pages=20, share_prefixes=False)


def logits_of(decoder, tokens, chunk: int, pages: list[int] | None = None):
    """Logits of every token, read `chunk` at a time; and the cache with its sequence. pages: which to take first."""
    kv = cache(decoder)
    if pages:
        kv._free += [page for page in reversed(pages) if not kv._free.remove(page)]
    sequence = kv.open(tokens)
    found = []
    for start in range(0, len(tokens), chunk):
        part = tokens[start : start + chunk]
        assert kv.reserve(sequence, len(part))
        builder = BatchBuilder()
        builder.add(sequence, part, range(len(part)))
        found.append(decoder.forward(builder.build(), kv))
        kv.commit(sequence, part)
    return np.concatenate(found), kv, sequence


@pytest.mark.parametrize(("chunk", "pages"), [(1, None), (7, [3, 1]), (50, [19, 0])])
def test_a_prompt_may_be_read_in_any_chunks_onto_any_pages(decoder, chunk, pages):
    whole, _, _ = logits_of(decoder, TOKENS, 50)
    assert whole.shape == (50, decoder.vocab_size)
    assert whole.std() > 1
    assert np.isfinite(whole).all()
    same(decoder, logits_of(decoder, TOKENS, chunk, pages)[0], whole)


def test_a_tree_gives_each_row_the_logits_of_its_own_chain(decoder):
    _, kv, sequence = logits_of(decoder, TOKENS, 50)
    assert kv.reserve(sequence, len(TREE))
    builder = BatchBuilder()
    builder.add(sequence, TREE_TOKENS, range(len(TREE)), TREE)
    tree = decoder.forward(builder.build(), kv)
    for row in range(len(TREE)):
        path, node = [], row
        while node >= 0:
            path.insert(0, TREE_TOKENS[node])
            node = TREE[node]
        same(decoder, tree[row], logits_of(decoder, TOKENS + path, 50)[0][-1])


@pytest.mark.parametrize("num_before", [50, 38])
def test_a_tree_may_grow_over_several_passes(decoder, num_before):
    """As a drafter grows it: rows whose parents were rows of earlier passes, the first of them behind a chunk of the
    prompt that is not committed either."""
    _, kv, sequence = logits_of(decoder, TOKENS[:num_before], 50)
    chunk = TOKENS[num_before:]
    trunk = len(chunk) - 1
    parents = [*range(-1, trunk), *(trunk + 1 + parent if parent >= 0 else trunk for parent in TREE)]
    tokens = [*chunk, *TREE_TOKENS]
    assert kv.reserve(sequence, len(tokens))
    found = []
    for start, end in ((0, len(chunk) + 2), (len(chunk) + 2, len(chunk) + 3), (len(chunk) + 3, len(tokens))):
        builder = BatchBuilder()
        builder.add(sequence, tokens[start:end], range(end - start), parents[:end], num_fed=start)
        found.append(decoder.forward(builder.build(), kv))
    tree = np.concatenate(found)[len(chunk) :]
    for row in range(len(TREE)):
        path, node = [], row
        while node >= 0:
            path.insert(0, TREE_TOKENS[node])
            node = TREE[node]
        same(decoder, tree[row], logits_of(decoder, TOKENS + path, 50)[0][-1])


def test_a_committed_path_of_a_tree_goes_on_as_if_it_had_been_a_chain(decoder):
    _, kv, sequence = logits_of(decoder, TOKENS, 50)
    assert kv.reserve(sequence, len(TREE))
    builder = BatchBuilder()
    builder.add(sequence, TREE_TOKENS, [0], TREE)
    decoder.forward(builder.build(), kv)
    path = [0, 2, 5]
    kv.commit(sequence, [TREE_TOKENS[row] for row in path], path)
    builder = BatchBuilder()
    builder.add(sequence, [9], [0])
    after = decoder.forward(builder.build(), kv)[0]
    same(decoder, after, logits_of(decoder, [*TOKENS, *(TREE_TOKENS[row] for row in path), 9], 7)[0][-1])


def test_other_sequences_in_the_pass_change_nothing(decoder):
    alone = [logits_of(decoder, TOKENS[start:], 50)[0] for start in (0, 13, 44)]
    kv, builder = cache(decoder), BatchBuilder()
    for start in (44, 0, 13):
        sequence = kv.open(TOKENS[start:])
        assert kv.reserve(sequence, len(TOKENS) - start)
        builder.add(sequence, TOKENS[start:], range(len(TOKENS) - start))
    together = decoder.forward(builder.build(), kv)
    same(decoder, together, np.concatenate([alone[2], alone[0], alone[1]]))


def test_no_logits_where_none_are_wanted(decoder):
    kv, builder = cache(decoder), BatchBuilder()
    sequence = kv.open(TOKENS)
    assert kv.reserve(sequence, 50)
    builder.add(sequence, TOKENS)
    assert decoder.forward(builder.build(), kv).shape == (0, decoder.vocab_size)


@pytest.mark.parametrize("name", tiny.MODELS)
def test_native_is_near_the_reference(name, tmp_path):
    """Int8 activations cost some percent of the logits' spread per row; a wrong formula costs all of it."""
    file = gguf.read(tiny.write_tiny(tmp_path / "model.gguf", tiny.MODELS[name], matrix_type=TensorType.F32))
    native, reference = (logits_of(Decoder(file, ops.create(kind)), TOKENS, 50)[0] for kind in ops.OPS)
    assert np.corrcoef(native.ravel(), reference.ravel())[0, 1] > 0.99


class Stepwise(NativeOps):
    """The native operations, a layer put together from them as `Ops` defines it."""

    layer, forward = Ops.layer, Ops.forward


def test_a_native_layer_has_the_bits_of_its_operations(path):
    whole, steps = (logits_of(Decoder(gguf.read(path), kind(2)), TOKENS, 25)[0] for kind in (NativeOps, Stepwise))
    assert np.array_equal(whole, steps)


def test_a_prepared_layer_keeps_its_weights(path):
    decoder = Decoder(gguf.read(path), NativeOps(2))
    wanted = logits_of(decoder, TOKENS, 50)[0]
    decoder.layers = []
    gc.collect()
    filler = Decoder(gguf.read(path), decoder.ops)  # takes memory that was given back too early
    assert np.array_equal(logits_of(decoder, TOKENS, 50)[0], wanted)
    assert np.array_equal(logits_of(filler, TOKENS, 50)[0], wanted)


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16, TensorType.BF16])
def test_sizes_that_no_block_divides_run_in_float_types(tmp_path, kind):
    odd = {"hidden": 61, "ffn": 99, "head_dim": 10, "num_heads": 3, "num_kv_heads": 1, "vocab_size": 291}
    file = gguf.read(tiny.write_tiny(tmp_path / "odd.gguf", matrix_type=kind, **odd))
    native, reference = (Decoder(file, ops.create(name, 2)) for name in ("native", "reference"))
    found = logits_of(native, TOKENS, 50)[0]
    np.testing.assert_allclose(found, logits_of(reference, TOKENS, 50)[0], atol=0.05)
    for chunk in (1, 7):
        assert np.array_equal(logits_of(native, TOKENS, chunk)[0], found)


def test_a_matrix_whose_rows_are_not_full_blocks_is_refused_by_name(tmp_path):
    """Rows of 64 values cannot be K-quants, whose blocks have 256."""
    broken = Tensor("blk.1.ffn_up.weight", TensorType.Q4_K, (128, 64), np.zeros(128 * 144, np.uint8))
    with pytest.raises(ModelError, match=r"blk\.1\.ffn_up\.weight .*rows of Q4_K are full blocks of 256"):
        Decoder(gguf.read(write(tmp_path, {broken.name: broken})), NativeOps(2))


def write(tmp_path, change):
    """The tiny Llama file with its tensors changed: name -> new tensor, None to leave it out."""
    tensors = [change.get(t.name, t) for t in tiny.tensors(tiny.LLAMA)]
    extra = [t for name, t in change.items() if t and name not in {x.name for x in tiny.tensors(tiny.LLAMA)}]
    return write_gguf(tmp_path / "model.gguf", tiny.metadata(tiny.LLAMA), [t for t in [*tensors, *extra] if t])


def vector(name: str, size: int) -> Tensor:
    return make_tensor(name, TensorType.F32, np.ones(size, np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output_norm.weight": None}, "tensor output_norm.weight is missing"),
        ({"blk.1.ffn_up.weight": None}, "tensor blk.1.ffn_up.weight is missing"),
        ({"blk.0.attn_norm.weight": vector("blk.0.attn_norm.weight", 63)}, r"attn_norm.weight has shape \(63,\)"),
        ({"token_embd.weight": vector("token_embd.weight", 64)}, "token_embd.weight has shape"),
        ({"blk.0.attn_q.bias": vector("blk.0.attn_q.bias", 5)}, "attn_q.bias has shape"),
        ({"blk.0.attn_sinks": vector("blk.0.attn_sinks", 4)}, "not supported: tensor blk.0.attn_sinks"),
        ({"blk.2.attn_norm.weight": vector("blk.2.attn_norm.weight", 64)}, "not supported: tensor blk.2.attn_norm"),
        ({"rope_freqs.weight": vector("rope_freqs.weight", 15)}, "rope_freqs.weight has 15 values"),
        ({"rope_freqs.weight": vector("rope_freqs.weight", 1)}, "rope_freqs.weight has 1 values"),
    ],
)
def test_a_file_with_missing_misshapen_or_unknown_parts_is_refused(tmp_path, change, message):
    with pytest.raises(ModelError, match=message) as info:
        Decoder(gguf.read(write(tmp_path, change)), ops.create("reference"))
    assert "model.gguf" in str(info.value)


def test_biases_and_rope_factors_are_used(tmp_path):
    plain = Decoder(gguf.read(write(tmp_path, {})), ops.create("reference"))
    base = logits_of(plain, TOKENS, 50)[0]
    for change in (vector("blk.0.attn_v.bias", 64), tiny.filled(vector("rope_freqs.weight", 16), 8.0)):
        changed = Decoder(gguf.read(write(tmp_path, {change.name: change})), ops.create("reference"))
        assert np.abs(logits_of(changed, TOKENS, 50)[0] - base).max() > 0.1


def test_a_tied_output_is_the_embedding(tmp_path):
    decoder = Decoder(gguf.read(tiny.write_tiny(tmp_path / "tied.gguf", tied=True)), ops.create("reference"))
    found, _, _ = logits_of(decoder, TOKENS, 50)
    untied = replace(tiny.LLAMA, tied=True)
    tensors = tiny.tensors(untied)
    tensors.append(replace(next(t for t in tensors if t.name == "token_embd.weight"), name="output.weight"))
    again = Decoder(gguf.read(write_gguf(tmp_path / "copy.gguf", tiny.metadata(untied), tensors)), decoder.ops)
    assert np.array_equal(logits_of(again, TOKENS, 50)[0], found)


@pytest.mark.parametrize("kept", [[5], [0, 3, 17, 200, 255], list(range(1, 288, 2))])
def test_kept_tokens_have_the_logits_that_they_have_among_all(decoder, path, kept):
    whole, _, _ = logits_of(decoder, TOKENS, 50)
    trimmed = Decoder(gguf.read(path), decoder.ops, np.array(kept, np.int32))
    found, _, _ = logits_of(trimmed, TOKENS, 50)
    same(decoder, found, whole[:, kept])
    more = [1, 40, 41, 287]
    batch, kv = nothing_wanted(trimmed)
    wanted = replace(batch, wanted=np.array([0, 2], np.int32))
    logits = trimmed.forward(wanted, kv, trimmed.output_rows(np.array(more, np.int32)))
    same(decoder, logits, whole[[0, 2]][:, kept + more])
    assert (trimmed.num_logits, trimmed.vocab_size) == (len(kept), decoder.vocab_size)
    assert trimmed.forward(*nothing_wanted(trimmed)).shape == (0, len(kept))


@pytest.mark.parametrize("kind", [TensorType.Q4_K, TensorType.Q6_K, TensorType.Q5_0, TensorType.F16])
def test_kept_rows_of_every_layout(kind, tmp_path):
    file = gguf.read(tiny.write_tiny(tmp_path / "m.gguf", hidden=256, ffn=256, num_heads=8, matrix_type=kind))
    op_set, kept = NativeOps(2), np.array([2, 33, 34, 100, 287], np.int32)
    whole, _, _ = logits_of(Decoder(file, op_set), TOKENS, 50)
    assert np.array_equal(logits_of(Decoder(file, op_set, kept), TOKENS, 50)[0], whole[:, kept])


def nothing_wanted(decoder):
    kv = cache(decoder)
    sequence = kv.open([])
    assert kv.reserve(sequence, 3)
    builder = BatchBuilder()
    builder.add(sequence, TOKENS[:3])
    return builder.build(), kv
