import re

import pytest

from cli_run import refused


def test_all_equal(cli, fake):
    done = cli("check", "exact", "--model", "m", "--quick")
    assert done.status == 0
    # 4 prompts, 3 temperatures, 2 thread counts; alone: off and lookup; by eights, each prompt twice: the same; less
    # the 12 runs that are the reference.
    assert "exact: 204 of 204 equal (drafts checked: lookup " in done.out
    assert [llm.settings["threads"] for llm in fake.instances] == [1, 2]
    assert all(llm.is_closed for llm in fake.instances)


def test_every_proposer_is_checked_alone_and_in_order(cli, fake):
    done = cli("check", "exact", "--model", "m", "--draft", "d", "--quick", "--threads", 1)
    assert re.search(r"exact: (\d+) of \1 equal", done.out)
    assert "draft_model" in done.out


def test_trees_are_checked_where_a_proposer_makes_them(cli, fake):
    fake.is_wrong_with = "draft_model"
    done = cli("check", "exact", "--model", "m", "--draft", "d", "--quick", "--threads", 1)
    ways = [
        "lookup+draft_model in trees of 4",
        "draft_model",
        "draft_model in trees of 2",
        "draft_model in trees of 4",
        "auto",
    ]
    for way in ways:
        assert f"[{way}, temperature 0.7, batch 8, threads 1]" in done.out
    assert "[lookup, " not in done.out


def test_difference(cli, fake):
    fake.is_wrong_with = "lookup"
    done = cli("check", "exact", "--model", "m", "--quick", "--threads", "1")
    assert done.status == 1
    first, *_, last = done.out.splitlines()
    assert first.startswith("different: edit [lookup, temperature 0, batch 1, threads 1] at token 2: expected ")
    assert "found 35, logit gap " in first
    # Off by eights is right: 3 temperatures, 8 prompts; lookup is wrong everywhere: 3 times 4 and 8.
    assert last.startswith("exact: 24 of 96 equal")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--model", "missing"), "neither a file nor a known model"),
        (("--model", "m", "--threads", "1,x"), "--threads is '1,x'"),
        (("--model", "m", "--threads", "0"), "whole numbers from 1"),
        ((), "Missing option '--model'"),
    ],
)
def test_refusals(cli, fake, arguments, reason):
    assert reason in refused(cli("check", "exact", *arguments))
