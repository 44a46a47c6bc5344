from fake_llm import FakeLLM
from foredraft.bench.arms import parse_arms
from foredraft.bench.cells import cells
from foredraft.bench.runner import Runner, run_all
from foredraft.bench.workloads import Prompt
from foredraft.core import SamplingParams

PROMPTS = [Prompt("p1", "ab", 4), Prompt("p2", "cde", 6), Prompt("p3", "f", 8)]


def runner(max_tokens=None):
    llm = FakeLLM("m")
    return Runner(llm, SamplingParams(), max_tokens, lambda text: list(text.encode())), llm


def test_prompts_run_in_groups_and_the_last_group_is_filled_up():
    running, llm = runner()
    run = running.run("w", PROMPTS, parse_arms("off")[0], concurrency=2)
    assert [bytes(prompt) for prompt in llm.prompts] == [b"ab", b"cde", b"f", b"ab"]
    assert [bytes(answer) for answer in run.answers] == [b"ABAB", b"CDECDE", b"FFFFFFFF"]
    assert run.stats.num_tokens == 4 + 6 + 8 + 4
    assert len(run.ttfts_ms) == 4
    assert run.prompt.tokens == 2 + 3 + 1 + 2


def test_max_tokens_only_lowers():
    running, _ = runner(max_tokens=5)
    run = running.run("w", PROMPTS, parse_arms("off")[0], concurrency=1)
    assert [len(answer) for answer in run.answers] == [4, 5, 5]


def test_every_second_round_goes_backwards():
    running, _ = runner()
    runs = run_all(running, {"v": PROMPTS[:1], "w": PROMPTS}, parse_arms("off,on:lookup:2"), [1, 2], rounds=2)
    order = [(run.workload, run.concurrency, run.arm.name) for run in runs]
    first = [(w, c, arm) for w in "vw" for c in (1, 2) for arm in ("off", "on:lookup:2")]
    second = [(w, c, arm) for w in "vw" for c in (1, 2) for arm in ("on:lookup:2", "off")]
    assert order == first + second


def test_warm_up_leaves_no_trace():
    running, llm = runner()
    running.warm_up(parse_arms("off,on"), PROMPTS[2])
    assert [bytes(prompt) for prompt in llm.prompts] == [b"f", b"f"]


def test_cells_are_medians_over_rounds():
    running, _ = runner()
    runs = run_all(running, {"w": PROMPTS}, parse_arms("off,on:lookup:2"), [1], rounds=3)
    for run, seconds in zip(runs, (1, 4, 8, 2, 3, 16), strict=True):
        run.decode = type(run.decode)(16, seconds)
    off, on = cells(runs)
    # Backwards in the second round: off took 1, 2 and 3 seconds, on 4, 8 and 16.
    assert [figure["tokens_per_s"] for figure in off["rounds"]] == [16, 8, 16 / 3]
    assert (off["tokens_per_s"], on["tokens_per_s"]) == (8, 2)
    assert off["same_text"]
    assert on["same_text"]


def test_one_changed_token_is_not_the_same_text():
    running, _ = runner()
    runs = run_all(running, {"w": PROMPTS}, parse_arms("off,on:lookup:2"), [1], rounds=2)
    runs[2].answers[1] = (*runs[2].answers[1][:-1], 0)
    assert [cell["same_text"] for cell in cells(runs)] == [True, False]
