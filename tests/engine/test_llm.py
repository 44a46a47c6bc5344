"""The Python API with tiny models: clear errors, results, streams, and exactness with the native ops."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import tiny
from foredraft.core import SamplingParams, Speculation, SpeculationStats
from foredraft.engine.llm import LLM
from foredraft.errors import (
    CapacityError,
    ConfigError,
    ForedraftError,
    ModelError,
    RequestError,
    TemplateError,
    TokenizerError,
)
from gguf_writer import write_gguf

OFF, LOOKUP, DRAFT = Speculation("off"), Speculation("on", 5, ("lookup",)), Speculation("on", 3, ("draft_model",))
PROMPTS = ["the cat and the dog and the cat and", "in the end", "a b a b a b a b", "and on and on and on"]
MIB = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="module")
def llama(folder):
    return tiny.write_tiny(folder / "llama.gguf")


@pytest.fixture(scope="module")
def reference(llama):
    return LLM(llama, ops="reference", kv_memory=16 * MIB)


def results(llm, speculation, prompts=PROMPTS, **params):
    return llm.generate(prompts, SamplingParams(**params), speculation)


def visible(found):
    return [(r.token_ids, r.text, r.finish_reason, r.choices[0].logprobs) for r in found]


def test_a_result_tells_what_happened(reference):
    (result,) = reference.generate("the cat", SamplingParams(max_tokens=5, seed=9, logprobs=2, ignore_eos=True), OFF)
    assert result.prompt_token_ids == reference.tokenizer.encode("the cat")
    assert len(result.token_ids) == len(result.choices[0].logprobs) == 5
    assert result.text == reference.tokenizer.decode(result.token_ids)
    assert (result.finish_reason, result.seed, result.num_cached_tokens) == ("length", 9, 0)
    first = result.choices[0].logprobs[0]
    assert first.top[0] == (result.token_ids[0], first.logprob)
    assert first.top[0][1] > first.top[1][1]
    assert (result.stats.num_steps, result.stats.num_tokens) == (5, 5)


def test_a_missing_seed_is_drawn_and_reported(reference):
    params = {"temperature": 1.5, "max_tokens": 12}
    first, second = (results(reference, OFF, ["the cat"], **params)[0] for _ in range(2))
    assert first.seed != second.seed
    assert first.token_ids != second.token_ids
    again = results(reference, OFF, ["the cat"], seed=first.seed, **params)[0]
    assert again.token_ids == first.token_ids


def test_a_prompt_may_be_token_ids_and_is_cached(reference):
    ids = list(range(70))
    first, second = (reference.generate([ids], SamplingParams(max_tokens=3), OFF)[0] for _ in range(2))
    assert first.token_ids == second.token_ids
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 64)


def test_each_prompt_may_have_its_own_parameters(reference):
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (2, 5)]
    assert [len(r.token_ids) for r in reference.generate(PROMPTS[:2], params, OFF)] == [2, 5]


def test_nothing_in_nothing_out(reference):
    assert reference.generate([], SamplingParams(), OFF) == []


def test_stream_gives_the_tokens_of_generate(reference):
    whole = visible(results(reference, LOOKUP, max_tokens=20))
    texts = defaultdict(str)
    for chunk in reference.stream(PROMPTS, SamplingParams(max_tokens=20), LOOKUP):
        texts[chunk.request] += chunk.text
    assert [texts[i] for i in range(len(PROMPTS))] == [text for _, text, _, _ in whole]


def test_runs_that_take_turns_lose_nothing(reference):
    """Two streams are read alternately, and a third run comes between."""
    params = SamplingParams(max_tokens=15, ignore_eos=True)
    alone = [r.token_ids for r in reference.generate(PROMPTS[:3], params, OFF)]
    first, second = (reference.stream(prompt, params, OFF) for prompt in PROMPTS[:2])
    tokens = [[next(first).token_id], [next(second).token_id]]
    for one, two in zip(first, second, strict=True):
        tokens[0].append(one.token_id)
        tokens[1].append(two.token_id)
        if len(tokens[0]) == 8:
            assert reference.generate(PROMPTS[2], params, OFF)[0].token_ids == alone[2]
    assert tokens == alone[:2]


def test_a_closed_or_unread_stream_leaves_nothing_running(reference):
    params = SamplingParams(max_tokens=50, ignore_eos=True)
    available = reference.engine.scheduler._kv.num_available_pages
    reference.stream(PROMPTS, params, OFF)
    stream = reference.stream(PROMPTS, params, OFF)
    next(stream)
    stream.close()
    assert reference.engine.is_idle
    assert reference.engine.scheduler._kv.num_available_pages == available


def test_closing_the_model_ends_its_streams(reference):
    stream = reference.stream(PROMPTS, SamplingParams(max_tokens=50, ignore_eos=True), OFF)
    next(stream)
    reference.close()
    assert len(list(stream)) < 8  # only what was decided before
    assert reference.engine.is_idle


def test_choices_are_reproducible_and_different(reference):
    params = SamplingParams(max_tokens=12, temperature=1.5, seed=3, n=4)
    found = [
        [choice.token_ids for choice in reference.generate("the cat", params, s)[0].choices] for s in (OFF, LOOKUP)
    ]
    assert found[0] == found[1]
    assert len({tuple(tokens) for tokens in found[0]}) == 4


def test_a_prediction_is_drafted_from_first_and_counted(reference):
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    plain = reference.generate(PROMPTS[:2], params, OFF)
    expected = [r.token_ids for r in plain]
    speculation = Speculation("on", 9)
    found = reference.generate(PROMPTS[:2], params, speculation, prediction=expected)
    assert [r.token_ids for r in found] == expected
    for result in found:
        assert result.stats.num_steps == 3
        assert result.stats.num_accepted_by_proposer == {"prediction": 27}
    half = [expected[0][:10], []]
    found = reference.generate(PROMPTS[:2], params, speculation, prediction=half)
    assert [r.token_ids for r in found] == expected
    assert found[0].stats.num_accepted_by_proposer["prediction"] >= 9
    assert "prediction" not in found[1].stats.num_drafts_by_proposer
    off = reference.generate(PROMPTS[:2], params, OFF, prediction=expected)
    assert [r.stats.num_drafts for r in off] == [0, 0]


def test_a_predicted_text_holds_for_every_prompt(reference):
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    one, two = reference.generate(PROMPTS[:2], params, LOOKUP, prediction="the end")
    assert one.stats.num_drafts_by_proposer["prediction"] == two.stats.num_drafts_by_proposer["prediction"] >= 1


def test_prompts_are_cached_for_their_scope(reference):
    ids = [7, 8, 9] * 20
    cached = [
        reference.generate([ids], SamplingParams(max_tokens=2), OFF, scope=scope)[0].num_cached_tokens
        for scope in ("alice", "bob", "alice")
    ]
    assert cached == [0, 0, 32]


def test_chat_uses_the_files_template(reference):
    ids = reference.chat_tokens([{"role": "user", "content": "hi <|im_end|>"}])
    text = b"".join(reference.tokenizer.token_bytes(token, show_special=True) for token in ids).decode()
    assert text == "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(reference.tokenizer.special["<|im_end|>"]) == 1
    assert reference.chat([{"role": "user", "content": "hi"}], SamplingParams(max_tokens=2)).token_ids


def test_tools_need_a_template_that_knows_them(reference):
    tool = {"type": "function", "function": {"name": "f"}}
    with pytest.raises(TemplateError, match="this model's chat template does not know tools"):
        reference.chat([{"role": "user", "content": "hi"}], tools=[tool])


REFUSED = {
    "empty": ("", {}, RequestError, "prompt is empty"),
    "no tokens": ([[]], {}, RequestError, "prompt is empty"),
    "too long": ([[1] * 600], {}, RequestError, "600 tokens, the context 512"),
    "as long as the context": ([[1] * 512], {}, RequestError, "one is needed for the answer"),
    "unknown token": ([[1, 288]], {}, RequestError, "prompt has token 288; this model's tokens are 0 to 287"),
    "negative token": ([[-1]], {}, RequestError, "prompt has token -1"),
    "not a token": ([["x"]], {}, RequestError, "prompt"),
    "ids without a list around": ([1, 2], {}, RequestError, "list"),
    "unknown stop token": ("a", {"stop_token_ids": [999]}, RequestError, "stop_token_ids has token 999"),
    "unknown bias": ("a", {"logit_bias": {999: 1.0}}, RequestError, "logit_bias has token 999"),
    "surrogate": ("a\ud800", {}, TokenizerError, "surrogate"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_request_is_refused_before_anything_runs(reference, case):
    prompts, params, error, message = REFUSED[case]
    steps = reference.engine.num_steps
    with pytest.raises(error, match=message):
        reference.generate(prompts, SamplingParams(**params))
    with pytest.raises(error, match=message):
        reference.stream(prompts, SamplingParams(**params))
    assert reference.engine.is_idle
    assert reference.engine.num_steps == steps


def test_params_must_match_prompts(reference):
    with pytest.raises(ConfigError, match="2 prompts but 1 params"):
        reference.generate(["a", "b"], [SamplingParams()])


def test_predictions_must_match_prompts_and_be_tokens(reference):
    with pytest.raises(ConfigError, match="2 prompts but 1 predictions"):
        reference.generate(["a", "b"], prediction=["c"])
    with pytest.raises(RequestError, match="prediction has token 999"):
        reference.generate(["a"], prediction=[[999]])


def test_a_proposer_that_is_not_loaded_is_refused(reference):
    loaded = "grammar, prediction, suffix, lookup"
    with pytest.raises(ConfigError, match=f"'draft_model' is not loaded; loaded are {loaded}"):
        reference.generate("a", SamplingParams(), DRAFT)


def test_a_request_that_can_never_fit_is_refused(llama):
    llm = LLM(llama, ops="reference", kv_memory=2 * 16384)
    assert llm.capacity == 64
    with pytest.raises(CapacityError, match="need room for 71 tokens, the KV cache has 64"):
        llm.generate([[1]], SamplingParams(max_tokens=70))
    result = llm.generate([[1]], SamplingParams(max_tokens=63, ignore_eos=True), LOOKUP)[0]
    assert len(result.token_ids) == 63


def test_many_requests_share_a_small_cache(llama):
    tight, roomy = (LLM(llama, ops="reference", kv_memory=size) for size in (4 * 16384, 8 * MIB))
    params = {"max_tokens": 40, "ignore_eos": True}
    assert visible(results(tight, OFF, **params)) == visible(results(roomy, OFF, **params))
    assert tight.engine.scheduler.num_preemptions > 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"context_length": 513}, ConfigError, "context_length is 513; this model allows 2 to 512"),
        ({"context_length": 1}, ConfigError, "allows 2 to 512"),
        ({"max_sequences": 0}, ConfigError, "max_sequences is 0; allowed is 1 to 1024"),
        ({"kv_memory": 1 << 50}, ConfigError, "are available; ask for less"),
        ({"kv_memory": 1000}, ConfigError, "does not hold a page of 32 tokens"),
        ({"ops": "cuda"}, ConfigError, "unknown op set 'cuda'; known are native, reference"),
        ({"threads": 0}, ConfigError, "threads is 0; allowed is 1 to"),
        (
            {"proposers": ["oracle"]},
            ConfigError,
            "unknown proposer 'oracle'; known are draft_model, eagle, eagle3, grammar, lookup, medusa, mtp",
        ),
        ({"proposers": ["draft_model"]}, ConfigError, "proposer draft_model needs a draft model"),
        ({"draft": "nowhere.gguf"}, ModelError, "nowhere.gguf"),
        ({"draft_vocabulary": 100}, ConfigError, "draft_vocabulary is of a draft model, and there is none; name one"),
    ],
)
def test_options_that_are_not_allowed(llama, options, error, message):
    with pytest.raises(error, match=message):
        LLM(llama, **({"ops": "reference"} | options))


def test_a_draft_of_another_family_is_refused(llama, folder):
    with pytest.raises(TokenizerError, match="family"):
        LLM(llama, tiny.write_tiny(folder / "gemma.gguf", tiny.GEMMA3), ops="reference")


def test_a_file_whose_tokenizer_and_embeddings_disagree_is_refused(folder):
    metadata = tiny.metadata(tiny.TinyModel(vocab_size=300))
    path = write_gguf(folder / "odd.gguf", metadata, tiny.tensors(tiny.LLAMA))
    with pytest.raises(ModelError, match="tokenizer has 300 tokens, the embeddings 288"):
        LLM(path, ops="reference")


def test_a_model_without_a_template_refuses_to_chat(folder):
    llm = LLM(tiny.write_tiny(folder / "base.gguf", tiny.GEMMA3), ops="reference")
    assert not llm.has_chat_template
    with pytest.raises(TemplateError, match="no chat template"):
        llm.chat([{"role": "user", "content": "hi"}])


def test_a_model_that_computes_nonsense_says_so_and_frees_everything(folder):
    tensors = [t if t.name != "output_norm.weight" else tiny.filled(t, np.nan) for t in tiny.tensors(tiny.LLAMA)]
    llm = LLM(write_gguf(folder / "nan.gguf", tiny.metadata(tiny.LLAMA), tensors), ops="reference")
    with pytest.raises(ForedraftError, match="logit of nan"):
        llm.generate(PROMPTS, SamplingParams(max_tokens=3))
    assert llm.engine.is_idle


@pytest.mark.parametrize("name", tiny.MODELS)
def test_native_text_is_the_same_with_any_proposer_batch_and_thread_count(folder, name):
    """The promise, for each architecture: speculation off, alone and on one thread, against everything else. The draft
    is the same model (nearly all accepted), the same one with a trimmed vocabulary (some accepted), another one with a
    longer padding (nearly all refused)."""
    target = tiny.write_tiny(folder / f"{name}-target.gguf", tiny.MODELS[name])
    padded = tiny.MODELS[name].vocab_size + 32
    other = tiny.write_tiny(folder / f"{name}-draft.gguf", tiny.MODELS[name], seed=1, vocab_size=padded, num_layers=1)
    cases = [
        {"max_tokens": 40, "temperature": t, "seed": 5, "ignore_eos": True, "logprobs": 2} for t in (0.0, 0.7, 1.0)
    ]
    baseline = LLM(target, threads=1, kv_memory=8 * MIB, prefix_cache=False)
    expected = [[visible(results(baseline, OFF, [p], **case))[0] for p in PROMPTS] for case in cases]
    assert len({str(tokens) for one in expected for tokens in one}) == len(cases) * len(PROMPTS)
    total = SpeculationStats()
    for draft, vocabulary, max_sequences, threads in ((target, None, 16, 2), (target, 150, 3, 2), (other, None, 2, 3)):
        llm = LLM(
            target,
            draft,
            draft_vocabulary=vocabulary,
            threads=threads,
            max_sequences=max_sequences,
            kv_memory=8 * MIB,
        )
        for speculation in (OFF, LOOKUP, DRAFT, Speculation("auto", 7)):
            for case, want in zip(cases, expected, strict=True):
                found = results(llm, speculation, **case)
                assert visible(found) == want
                for result in found:
                    total.add(result.stats)
    assert total.num_drafts_by_proposer.keys() >= {"lookup", "draft_model"}
    assert 0.1 < total.alpha < 0.99


def test_a_trimmed_vocabulary_is_what_is_drafted_from(llama):
    llm = LLM(llama, llama, draft_vocabulary=100, ops="reference", kv_memory=8 * MIB)
    stats = SpeculationStats()
    for result in results(llm, DRAFT, max_tokens=40, ignore_eos=True):
        stats.add(result.stats)
    draft = llm.engine._drafting._proposers["draft_model"]._model
    assert draft.decoder.kept.tolist() == sorted({*range(100), *llm.tokenizer.eos_ids})
    assert 0 < stats.num_accepted < stats.num_draft_tokens
    with pytest.raises(ConfigError, match="draft_vocabulary is 300; allowed is 1 to 273"):
        LLM(llama, llama, draft_vocabulary=300, ops="reference")
