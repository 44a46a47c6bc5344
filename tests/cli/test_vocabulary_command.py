"""`foredraft train vocabulary`: from text to a file that a draft model drafts from."""

import json

import pytest

from cli_run import refused
from foredraft.engine.llm import LLM
from tiny import write_tiny


@pytest.fixture
def model(tmp_path):
    return write_tiny(tmp_path / "tiny.gguf")


def test_from_text_to_drafts(cli, model, tmp_path):
    text, lines, out = tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "v.json"
    text.write_text("eeeeé")
    lines.write_text('{"text": "zzz", "source": "eeee"}\n\n{"text": "<|im_end|>"}\n')
    done = cli("train", "vocabulary", "--model", model, "--size", 4, "--out", out, text, lines)
    assert (done.status, done.err) == (0, "")
    saved = json.loads(out.read_text())
    llm = LLM(model, model, draft_vocabulary=out, ops="reference")
    tokens = [llm.tokenizer.tokens[token] for token in saved["tokens"]]
    assert tokens[:2] == ["e", "z"]
    coverage, counted = saved["coverage"], saved["num_counted"]
    assert done.out == f"4 tokens written to {out}: {coverage:.2%} of the {counted} tokens counted\n"
    assert llm.tokenizer.special["<|im_end|>"] not in saved["tokens"]  # in text it is text
    draft = llm.engine._drafting._proposers["draft_model"]._model
    assert set(draft.decoder.kept.tolist()) == {*saved["tokens"], *llm.tokenizer.eos_ids}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", 0, "a.txt"], "size is 0; allowed is 1 to 273"),
        (["--size", 300, "a.txt"], "size is 300; allowed is 1 to 273"),
        (["--size", 9, "missing.txt"], "missing.txt cannot be read"),
        (
            ["--size", 9, "bad.jsonl"],
            'bad.jsonl, line 2 is not an object with text under "text", such as {"text": "Hello."}',
        ),
        ([], "Missing argument 'TEXT...'"),
    ],
)
def test_what_cannot_be_used(cli, model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    assert message in refused(cli("train", "vocabulary", "--model", model, "--out", "v.json", *arguments))
    assert not (tmp_path / "v.json").exists()
    assert "there is no folder" in refused(cli("train", "vocabulary", "--model", model, "--out", "no/v.json", "a.txt"))
