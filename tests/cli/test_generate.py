import json

import pytest

from cli_run import refused
from foredraft.cli import exchange


def test_bytes_of_the_text_only(cli, fake):
    done = cli("generate", "--model", "m", "--prompt", "hello, ", "--max-tokens", 20, "--stats")
    assert done.status == 0
    assert done.out == "HELLO, HELLO, HELLO,"
    assert "first token after" in done.err
    assert "lookup" in done.err
    assert fake.instances[0].is_closed


def test_template_by_default_and_raw(cli, fake):
    cli("generate", "--model", "m", "--prompt", "hi")
    cli("generate", "--model", "m", "--prompt", "hi", "--raw")
    fake.has_template = False
    cli("generate", "--model", "m", "--prompt", "hi")
    assert [bytes(llm.prompts[0]) for llm in fake.instances] == [b"<user>hi", b"hi", b"hi"]


def test_prompt_from_file_and_standard_input(cli, fake, tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"one\r\ntwo\n")
    cli("generate", "--model", "m", "--raw", "--prompt-file", path)
    cli("generate", "--model", "m", "--raw", stdin="three\n")
    assert [bytes(llm.prompts[0]) for llm in fake.instances] == [b"one\r\ntwo\n", b"three\n"]


def test_options_reach_the_model(cli, fake):
    drafting = "--draft d --draft-vocabulary 500 --drafter one.gguf --drafter two --proposer draft_model,lookup"
    cli("generate", "--model", "m", "--prompt", "hi", *drafting.split(), "--threads", 3, "--context", 99)
    settings = fake.instances[0].settings
    assert settings["threads"] == 3
    assert settings["draft_vocabulary"] == "500"
    assert settings["drafters"] == ("one.gguf", "two")
    assert settings["context_length"] == 99
    assert settings["proposers"] == ("draft_model", "lookup")


def test_a_schema_reaches_the_model(cli, fake, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text('{"type": "integer"}')
    cli("generate", "--model", "m", "--prompt", "hi", "--json-schema", path)
    cli("generate", "--model", "m", "--prompt", "hi")
    schema = {"type": "json_schema", "schema": {"type": "integer"}}
    assert [llm.response_format for llm in fake.instances] == [schema, None]
    path.write_text("{")
    assert f"{path} is not JSON" in refused(cli("generate", "--model", "m", "--prompt", "hi", "--json-schema", path))


def test_show_drafts_with_marks(cli, fake):
    done = cli("generate", "--model", "m", "--prompt", "abcdefghi", "--max-tokens", 9, "--k", 2, "--show-drafts")
    # Three steps of two drafted tokens and the model's own; in the third step it refuses the draft.
    assert done.out == "⟦AB⟧C⟦DE⟧F⟦GH⟧⟨I⟩"
    assert done.err.startswith("drafts: ⟦drafted and accepted⟧")


def test_show_drafts_in_color(cli, fake, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = cli("generate", "--model", "m", "--prompt", "abc", "--max-tokens", 3, "--k", 2, "--show-drafts")
    assert done.out == "\x1b[32mAB\x1b[0mC"


def test_speculation_off_has_no_drafts(cli, fake):
    done = cli("generate", "--model", "m", "--prompt", "abc", "--speculation", "off", "--show-drafts", "--stats")
    assert set(done.out) == set("ABC")
    assert "drafts: none" in done.err


@pytest.mark.parametrize(
    ("long_s", "mode", "is_said"), [(-1.0, "auto", True), (-1.0, "on", False), (60.0, "auto", False)]
)
def test_measuring_is_said_where_it_takes_long(cli, fake, monkeypatch, long_s, mode, is_said):
    monkeypatch.setattr(exchange, "LONG_S", long_s)
    done = cli("generate", "--model", "m", "--prompt", "hi", "--speculation", mode)
    assert ("passes were measured for 0.0 s" in done.err) == is_said


def test_json(cli, fake):
    done = cli(
        "generate",
        "--model",
        "m",
        "--prompt",
        "abc",
        "--max-tokens",
        6,
        "--n",
        2,
        "--logprobs",
        2,
        "--seed",
        7,
        "--speculation",
        "on",
        "--json",
    )
    result = json.loads(done.out)
    assert [choice["text"] for choice in result["choices"]] == ["ABCABC", "ABCABC"]
    assert result["seed"] == 7
    first = result["choices"][0]
    assert first["token_ids"] == list(b"ABCABC")
    assert first["finish_reason"] == "length"
    assert first["logprobs"][0] == {"logprob": -0.5, "top": {"65": -0.5, "35": -1.25}}
    assert first["stats"]["num_accepted"] == 4
    assert first["stats"]["tokens_per_step"] == 3


def test_a_fresh_seed_is_reported(cli, fake):
    seeds = {json.loads(cli("generate", "--model", "m", "--prompt", "a", "--json").out)["seed"] for _ in range(3)}
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--model missing --prompt x", "neither a file nor a known model"),
        ("--prompt x", "Missing option '--model'"),
        ("--model m --prompt x --prompt-file y", "give one of them"),
        ("--model m --prompt-file /nowhere", "/nowhere cannot be read"),
        ("--model m --prompt-file /", "/ cannot be read"),
        ("--model m --prompt x --json-schema /nowhere", "/nowhere cannot be read"),
        ("--model m --prompt x --top-p 3", "top_p is 3.0; allowed is above 0"),
        ("--model m --prompt x --temperature nan", "temperature is nan"),
        ("--model m --prompt x --max-tokens 0", "max_tokens is 0"),
        ("--model m --prompt x --k 65", "k is 65; allowed is a whole number, 0 to 64"),
        ("--model m --prompt x --rule best", "'best' is not one of 'exact', 'rejection', 'block'"),
        ("--model m --prompt x --speculation maybe", "'maybe' is not one of"),
        ("--model m --prompt x --logit-bias 5", "give a token id and a number"),
        ("--model m --prompt x --logit-bias 5=1000", "logit_bias[5] is 1000.0"),
        ("--model m --prompt x --stop=", "stop is ('',)"),
        ("--model m --prompt x --n 2", "--n 2 cannot be shown as plain text; add --json"),
        ("--model m --prompt x --logprobs 2", "--logprobs 2 cannot be shown as plain text"),
        ("--model m --prompt x --json --show-drafts", "leave one of them out"),
        ("--model m --prompt x --context 3", "the prompt has 7 tokens, the context 3"),
    ],
)
def test_refusals(cli, fake, arguments, reason):
    assert reason in refused(cli("generate", *arguments.split(" ")))


def test_interruption(cli, fake):
    fake.interrupt_at = 3
    done = cli("generate", "--model", "m", "--prompt", "abcdef", "--speculation", "off")
    assert (done.status, done.out, done.err.strip()) == (130, "ABC", "interrupted")
