import dataclasses
import json

import pytest

from fake_llm import FakeLLM
from foredraft.bench.arms import parse_arms
from foredraft.bench.cells import cells
from foredraft.bench.records import Record
from foredraft.bench.runner import Runner, Turn, turns
from foredraft.bench.workloads import Prompt
from foredraft.core import SamplingParams

PROMPTS = [Prompt("p1", "ab", 4), Prompt("p2", "cde", 6), Prompt("p3", "f", 8)]
OFF, ON = parse_arms("off,on:lookup:2")


def runner(max_tokens=None, reads_ahead=False):
    llm = FakeLLM("m")
    return Runner(llm, SamplingParams(), max_tokens, lambda text: list(text.encode()), reads_ahead), llm


def texts(run):
    return [bytes(answer) for _, answer in sorted(run.answers)]


def test_prompts_run_in_groups_and_the_last_group_is_filled_up():
    running, llm = runner()
    run = running.run(Turn(1, "w", 2, OFF), PROMPTS)
    assert [bytes(prompt) for prompt in llm.prompts] == [b"ab", b"cde", b"f", b"ab"]
    assert texts(run) == [b"ABAB", b"CDECDE", b"FFFFFFFF"]
    assert run.stats.num_tokens == 4 + 6 + 8 + 4
    assert len(run.ttfts_ms) == 4
    assert run.prompt.tokens == 2 + 3 + 1 + 2
    assert llm.routes == ["w", "w"]


def test_many_at_once_are_filled_from_few_prompts():
    running, llm = runner()
    run = running.run(Turn(1, "w", 8, OFF), PROMPTS)
    assert b"".join(bytes(prompt) for prompt in llm.prompts) == b"abcdef" * 2 + b"abcde"
    assert texts(run) == [b"ABAB", b"CDECDE", b"FFFFFFFF"]


def test_max_tokens_only_lowers():
    running, _ = runner(max_tokens=5)
    run = running.run(Turn(1, "w", 1, OFF), PROMPTS)
    assert [len(answer) for answer in texts(run)] == [4, 5, 5]


def test_every_second_round_goes_backwards():
    order = [(turn.round, turn.workload, turn.concurrency, turn.arm.name) for turn in turns("vw", (OFF, ON), [1, 2], 2)]
    first = [(1, w, c, arm) for w in "vw" for c in (1, 2) for arm in ("off", "on:lookup:2")]
    second = [(2, w, c, arm) for w in "vw" for c in (1, 2) for arm in ("on:lookup:2", "off")]
    assert order == first + second


def test_warm_up_leaves_no_trace():
    running, llm = runner()
    running.warm_up([OFF, ON], PROMPTS[2])
    assert [bytes(prompt) for prompt in llm.prompts] == [b"f", b"f"]
    assert llm.routes == ["warm-up", "warm-up"]


def test_cells_are_medians_over_rounds():
    running, _ = runner()
    records = []
    for turn, seconds in zip(turns("w", (OFF, ON), [1], 3), (1, 4, 8, 2, 3, 16), strict=True):
        run = running.run(turn, PROMPTS)
        run.decode = type(run.decode)(16, seconds)
        records.append(Record.of(run))
    off, on = cells(records)
    # Backwards in the second round: off took 1, 2 and 3 seconds, on 4, 8 and 16.
    assert [record.tokens_per_s for record in records if record.arm == "off"] == [16, 8, 16 / 3]
    assert (off["tokens_per_s"], on["tokens_per_s"]) == (8, 2)
    assert off["same_text"]
    assert on["same_text"]
    assert off["num_rounds"] == 3


@pytest.mark.parametrize("concurrency", [1, 2, 8])
def test_one_changed_token_is_not_the_same_text(concurrency):
    running, _ = runner()
    records = []
    for turn in turns("w", (OFF, ON), [concurrency], 2):
        run = running.run(turn, PROMPTS)
        if turn == Turn(2, "w", concurrency, ON):
            run.answers.add((1, (0, 0)))  # one of the answers to prompt 1, others stayed as they were
        records.append(Record.of(run))
    assert [cell["same_text"] for cell in cells(records)] == [True, False]


def test_a_record_outlives_the_file():
    running, _ = runner()
    record = Record.of(running.run(Turn(2, "w", 2, ON), PROMPTS))
    assert record.stats.num_drafts_by_proposer["lookup"] > 0
    read = Record.from_dict(json.loads(json.dumps(record.as_dict())))
    assert read == record
    read.stats.add(record.stats)  # counters add up still
    assert read.stats.num_drafts_by_proposer["lookup"] == 2 * record.stats.num_drafts_by_proposer["lookup"]


def test_prompt_times_are_left_out_where_they_say_nothing():
    running, _ = runner(reads_ahead=True)
    record = Record.of(running.run(Turn(1, "w", 2, OFF), PROMPTS), has_prompt_times=False)
    assert (record.prompt_tokens_per_s, record.ttft_ms) == (None, None)
    whole = dataclasses.replace(record, prompt_tokens_per_s=1.0)
    assert cells([record, whole])[0]["prompt_tokens_per_s"] == 1.0
