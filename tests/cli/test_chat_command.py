import pytest

from cli_run import refused


def test_conversation_is_kept(cli, fake):
    done = cli("chat", "--model", "m", "--max-tokens", 2, "--system", "be brief", stdin="ab\ncd\n")
    assert done.status == 0
    assert done.out == "AB\nCD\n"
    (llm,) = fake.instances
    assert bytes(llm.prompts[0]) == b"<system>be brief<user>ab"
    assert bytes(llm.prompts[1]) == b"<system>be brief<user>ab<assistant>AB<user>cd"
    assert llm.is_closed


def test_reset_stats_quit(cli, fake):
    done = cli("chat", "--model", "m", "--max-tokens", 2, stdin="/stats\nab\n/stats\n/reset\n\n/stats\ncd\n/quit\nef\n")
    assert done.out == "AB\nCD\n"
    assert bytes(fake.instances[0].prompts[1]) == b"<user>cd"
    first, *middle, last = done.err.splitlines()
    assert (first, last) == ("no answer yet", "no answer yet")
    assert middle[1].startswith("answer: 2 tokens")


def test_unknown_command(cli, fake):
    done = cli("chat", "--model", "m", stdin="/help me\n")
    assert done.out == ""
    assert "unknown command /help" in done.err
    assert "/quit or Ctrl-D leaves" in done.err


def test_interruption_ends_the_answer_only(cli, fake):
    fake.interrupt_at = 3
    done = cli("chat", "--model", "m", "--max-tokens", 6, "--speculation", "off", stdin="abcdef\nx\n")
    assert done.status == 0
    assert done.out == "ABC\nXXXXXX\n"
    assert "(stopped)" in done.err
    assert bytes(fake.instances[0].prompts[1]) == b"<user>abcdef<assistant>ABC<user>x"


def test_too_long_question_is_dropped(cli, fake):
    done = cli("chat", "--model", "m", "--context", 12, "--max-tokens", 1, stdin="a very long question\nab\n")
    assert done.status == 0
    assert done.out == "A\n"
    assert "error: the prompt has 26 tokens, the context 12; /reset starts afresh" in done.err
    assert bytes(fake.instances[0].prompts[0]) == b"<user>ab"


def test_model_without_template(cli, fake):
    fake.has_template = False
    assert "m has no chat template" in refused(cli("chat", "--model", "m", stdin="hi\n"))


@pytest.mark.parametrize("arguments", [("--model", "missing"), ("--model", "m", "--min-p", 1), ()])
def test_refusals(cli, fake, arguments):
    assert refused(cli("chat", *arguments, stdin="hi\n"))
