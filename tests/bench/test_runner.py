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
from foredraft.errors import RequestError

PROMPTS = [Prompt("p1", "ab", 4), Prompt("p2", "cde", 6), Prompt("p3", "f", 8)]
OFF, ON = parse_arms("off,on:lookup:2")


def encode(said):
    """The fake model answers with what follows the last ">", in capitals."""
    return list(">".join(said).encode())


def runner(max_tokens=None, reads_ahead=False, counts_failures=False, **settings):
    llm = FakeLLM("m", **settings)
    return Runner(llm, SamplingParams(), max_tokens, encode, reads_ahead, counts_failures), llm


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


def test_blocks_have_all_arms_before_the_next_one():
    order = [(t.block, t.workload, t.temperature, t.arm.name) for t in turns("vw", (OFF, ON), [1], 1, [0, 1], 2)]
    arms = ["off", "on:lookup:2"]
    first = [(1, w, heat, arm) for w in "vw" for heat in (0, 1) for arm in arms]
    assert order == first + [(2, w, heat, arm) for w in "vw" for heat in (0, 1) for arm in arms[::-1]]


def test_an_answer_goes_into_what_is_asked_next():
    running, llm = runner(max_tokens=3)
    talks = [Prompt("a", "x", 9, ("y", "z")), Prompt("b", "u", 9), Prompt("c", "v", 9, ("w",))]
    run = running.run(Turn(1, "w", 3, OFF), talks)
    assert [bytes(prompt) for prompt in llm.prompts] == [
        *(b"x", b"u", b"v"),
        *(b"x>XXX>y", b"v>VVV>w"),  # those that go on, together
        b"x>XXX>y>YYY>z",
    ]
    assert run.answers == {(0, (*text,)) for text in (b"XXX", b"YYY", b"ZZZ")} | {
        (1, (*b"UUU",)),
        (2, (*b"VVV",)),
        (2, (*b"WWW",)),
    }
    assert run.stats.num_tokens == 6 * 3
    assert len(run.ttfts_ms) == 6


def test_the_temperature_is_the_turns(monkeypatch):
    running, llm = runner()
    seen, stream = [], llm.stream
    monkeypatch.setattr(llm, "stream", lambda *a, **k: seen.extend(p.temperature for p in a[1]) or stream(*a, **k))
    running.run(Turn(1, "w", 2, OFF, 0.7), PROMPTS)
    assert seen == [0.7] * 4


def test_failures_are_counted_and_nothing_else():
    running, _ = runner(counts_failures=True, context_length=4)
    talks = [Prompt("a", "long enough", 3), Prompt("b", "x", 2), Prompt("c", "y", 3, ("and on",))]
    run = running.run(Turn(1, "w", 1, ON), talks)
    assert run.failures == {
        "the prompt has 11 tokens, the context 4": 1,
        "the prompt has 12 tokens, the context 4": 1,
    }
    assert run.answers == {(1, (*b"XX",)), (2, (*b"YYY",))}
    assert run.stats.num_tokens == 5
    record = Record.of(run)
    assert record.failures == run.failures
    assert cells([record])[0]["num_failed"] == 2
    none = Record.of(running.run(Turn(1, "w", 1, ON), talks[:1]))
    assert (none.tokens_per_s, none.ttft_ms, none.itl_p50_ms) == (None, None, None)
    with pytest.raises(RequestError, match="the prompt has 11 tokens"):
        runner(context_length=4)[0].run(Turn(1, "w", 1, ON), talks)


def test_texts_are_compared_with_those_of_the_same_block_and_temperature():
    running, _ = runner()
    records = [
        Record.of(running.run(turn, PROMPTS[turn.block - 1 : turn.block]))
        for turn in turns("w", (OFF, ON), [1], 1, [0, 1], 3)
    ]
    assert [(c["temperature"], c["arm"], c["num_rounds"], c["same_text"]) for c in cells(records)] == [
        (0, "off", 3, True), (0, "on:lookup:2", 3, True), (1, "off", 3, True), (1, "on:lookup:2", 3, True),
    ]  # fmt: skip
    wrong = [dataclasses.replace(r, answers_sha256="") if (r.block, r.arm) == (2, ON.name) else r for r in records]
    assert [cell["same_text"] for cell in cells(wrong)] == [True, False, True, False]


def test_acceptance_is_told_apart_by_proposer():
    running, _ = runner()
    [cell] = cells([Record.of(running.run(Turn(1, "w", 1, ON), PROMPTS))])
    counts = cell["by_proposer"]["lookup"]
    assert cell["by_proposer"].keys() == {"lookup"}
    assert (counts["num_drafts"], counts["alpha"]) == (cell["num_drafts"], cell["alpha"])


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
