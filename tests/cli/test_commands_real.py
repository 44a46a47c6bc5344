"""The commands on real models."""

import json
from contextlib import closing

import pytest

from cli_run import refused
from foredraft.bench.exact import ExactCheck, check_prompts
from foredraft.engine.llm import LLM

COUNTING = "1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5,"


def generated(cli, model, *arguments):
    return json.loads(cli("generate", "--model", model, "--prompt", COUNTING, "--raw", "--json", *arguments).out)


@pytest.mark.parametrize("temperature", [0, 1])
def test_same_answer_with_and_without_drafts(cli, smollm2, temperature):
    shared = ["--temperature", temperature, "--seed", 5, "--max-tokens", 24, "--logprobs", 2]
    off = generated(cli, smollm2, *shared, "--speculation", "off")
    on = generated(cli, smollm2, *shared, "--speculation", "on", "--k", 6)
    stats = [result["choices"][0].pop("stats") for result in (off, on)]
    assert off["choices"] == on["choices"]
    assert len(on["choices"][0]["token_ids"]) == 24
    assert stats[0]["num_drafts"] == 0
    assert stats[1]["num_drafts"] > 0


def test_text_on_standard_output_is_the_text(cli, smollm2):
    arguments = ["--max-tokens", 12, "--seed", 1]
    text = generated(cli, smollm2, *arguments)["choices"][0]["text"]
    done = cli("generate", "--model", smollm2, "--prompt", COUNTING, "--raw", *arguments)
    assert (done.out, done.err) == (text, "")


def test_chat_answers_line_by_line(cli, smollm2):
    done = cli("chat", "--model", smollm2, "--max-tokens", 6, stdin="Say hello.\nAgain.\n/stats\n")
    assert done.status == 0
    assert len(done.out.splitlines()) >= 2
    assert "tokens/s" in done.err


def test_bench_finds_equal_texts(cli, smollm2, tmp_path):
    prompts, result = tmp_path / "prompts.jsonl", tmp_path / "result.json"
    prompts.write_text(json.dumps({"name": "count", "prompt": COUNTING, "max_tokens": 16}) + "\n")
    options = ["--raw", "--rounds", 1, "--concurrency", "1,2"]
    done = cli("bench", "--model", smollm2, "--prompts", prompts, *options, "--json", result)
    assert done.status == 0, done.err
    cells = json.loads(result.read_text())["cells"]
    assert [(cell["arm"], cell["concurrency"]) for cell in cells] == [
        ("off", 1), ("on:lookup:8", 1), ("off", 2), ("on:lookup:8", 2),
    ]  # fmt: skip
    assert all(cell["same_text"] and cell["tokens_per_s"] > 0 and cell["ttft_ms"] > 0 for cell in cells)
    assert cells[1]["tokens_per_step"] > 1
    assert cells[1]["num_drafts"] > 0


def exact_check(model, draft, num_tokens, thread_counts):
    def load(num_threads):
        return closing(LLM(model, draft, context_length=1024, max_sequences=8, threads=num_threads))

    def encode(llm, text):
        return llm.chat_tokens([{"role": "user", "content": text}])

    checking = ExactCheck(load, encode, check_prompts(is_quick=True), num_tokens, thread_counts)
    for _ in checking.run():
        pass
    return checking.outcome


def test_exact(smollm2):
    outcome = exact_check(smollm2, None, num_tokens=20, thread_counts=(1, 2))
    assert outcome.differences == []
    assert outcome.num_equal == outcome.num_total == 348
    assert outcome.num_drafts["lookup"] > 10


@pytest.mark.models
def test_exact_with_a_draft_model(qwen, qwen_small):
    outcome = exact_check(qwen, qwen_small, num_tokens=6, thread_counts=(2,))
    assert outcome.differences == []
    assert outcome.num_drafts["draft_model"] > 50


@pytest.mark.models
def test_model_without_a_template_only_continues(cli, gemma):
    assert "no chat template" in refused(cli("chat", "--model", gemma, stdin="hi\n"))
    assert cli("generate", "--model", gemma, "--prompt", "The capital of France is", "--max-tokens", 3).out.strip()


def broken_files(tmp_path, smollm2):
    head = smollm2.read_bytes()[:3_000_000]
    files = {
        "empty.gguf": b"",
        "text.gguf": b"hello",
        "cut_in_metadata.gguf": head[:100_000],
        "cut_in_tensors.gguf": head,
        "huge_counts.gguf": b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return [tmp_path / name for name in files]


def test_broken_files_are_refused(cli, tmp_path, smollm2):
    for path in broken_files(tmp_path, smollm2):
        assert path.name in refused(cli("generate", "--model", path, "--prompt", "x"))
    refused(cli("generate", "--model", tmp_path, "--prompt", "x"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--proposer magic", "unknown proposer 'magic'; known are draft_model, eagle, eagle3, grammar, lookup"),
        ("--proposer draft_model", "needs a draft model"),
        ("--threads 0", "threads is 0; allowed is 1 to"),
        ("--context 4", "the context 4"),
        ("--context 1000000000", "context_length is 1000000000; this model allows"),
        ("--stop-token 99999999", "this model's tokens are 0 to 49151"),
        ("--logit-bias 99999999=1", "this model's tokens are 0 to 49151"),
        ("--draft nowhere.gguf", "'nowhere.gguf' is neither a file nor a known model"),
    ],
)
def test_refusals_by_the_engine(cli, smollm2, arguments, reason):
    assert reason in refused(cli("generate", "--model", smollm2, "--prompt", "hello", *arguments.split()))


def test_empty_prompt(cli, smollm2):
    assert "the prompt is empty" in refused(cli("generate", "--model", smollm2, "--raw", stdin=""))
