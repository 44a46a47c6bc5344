"""An experiment on made-up steps: who holds when, what is left out, what is compared, and every way to its end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from foredraft.errors import ConfigError
from foredraft.governor.experiment import Experiment, ExperimentConfig, changes
from foredraft.governor.pools import PoolConfig
from foredraft.steps import DraftOutcome, StepRecord

OWN = PoolConfig(max_concurrency=5)
STEP_S = 0.25
CONFIG = ExperimentConfig(pool="chats", window_s=10.0, carry_over_s=2.0, blocks=4, seed=3)


def step(tokens: dict[int, int], routes: dict[int, str], drafts=(), seconds: float = STEP_S) -> StepRecord:
    return StepRecord(
        0, len(tokens), 0, len(tokens), 0, tuple(drafts), {}, tokens, routes, {"forward": seconds, "decide": 0.0}
    )


class Traffic:
    """Steps one after the other: `speeds` are tokens of a step under "A" and "B" for a sequence of the pool."""

    def __init__(self, config: ExperimentConfig = CONFIG, length: int = 8, **speeds: int) -> None:
        self.now_s = 100.0
        self.experiment = Experiment(config, OWN, ["chat", "talk"], self.now_s)
        self.length = length  # steps of an answer
        self.speeds = {"A": 10, "B": 10, **speeds}
        self.num_steps = 0
        self.held: list[str] = []  # the mode at each switch

    def step(self, pause_s: float = 0.0) -> None:
        setting = self.experiment.setting
        arm = "A" if setting == self.experiment.arms["A"] else "B"
        if not self.held or self.held[-1] != setting.mode:
            self.held.append(setting.mode)
        self.now_s += STEP_S + pause_s
        self.num_steps += 1
        ours = self.num_steps // self.length
        # A little unevenness, so that blocks vary.
        tokens = {ours: self.speeds[arm] + (self.num_steps % 41 == 0), 10**6: 1}
        self.experiment.step(step(tokens, {ours: "chat", 10**6: "other"}), self.now_s)

    def run(self, pause_s: float = 0.0) -> dict[str, object]:
        while self.experiment.status == "running":
            self.step(pause_s)
        return self.experiment.record()


def test_arms_hold_as_designed_and_carry_over_is_left_out():
    traffic = Traffic()
    record = traffic.run()
    modes = [{"A": "off", "B": "auto"}[arm] for arm in record["design"]]
    assert traffic.held == [mode for i, mode in enumerate(modes) if not i or mode != modes[i - 1]]
    assert [window["arm"] for window in record["windows"]] == list(record["design"])
    assert sorted(record["design"]) == ["A"] * 8 + ["B"] * 8
    first, *others = record["windows"]
    assert first["carry_over_s"] == CONFIG.window_s, "nothing is known of the answers that ran before"
    assert {window["carry_over_s"] for window in others} == {2.0}
    assert {window["seconds"] for window in record["windows"]} == {10.0}
    assert all(400 <= window["tokens"] <= 402 for window in record["windows"])
    assert {window["other_tokens_per_s"] for window in record["windows"]} == {4.0}


def test_carry_over_is_as_long_as_the_longest_answer_but_no_longer_than_a_window():
    for length, carry_over_s, num_carried_over in ((17, 4.0, 0), (400, 10.0, 1)):
        last = Traffic(length=length).run()["windows"][-1]
        assert (last["carry_over_s"], last["num_carried_over"]) == (carry_over_s, num_carried_over)


def test_a_faster_arm():
    record = Traffic(B=13).run()
    assert (record["status"], record["verdict"], record["compared"]) == ("finished", "better", "tokens_per_s")
    assert record["ratio"]["low"] < 1.3 < record["ratio"]["high"]
    assert record["bootstrap_ratios"]["tokens_per_s"]["estimate"] == pytest.approx(1.3, rel=0.01)
    assert record["medians"]["A"]["tokens_per_s"] == pytest.approx(40, rel=0.01)
    assert record["reason"].startswith("auto gave 1.299 times the tokens/s of off (4 blocks, 95% interval 1.")


def test_equal_arms():
    record = Traffic().run()
    assert (record["status"], record["verdict"]) == ("finished", "no difference")


def test_harm_ends_it_early():
    config = replace(CONFIG, blocks=8)
    record = Traffic(config, B=8).run()
    assert (record["status"], record["verdict"]) == ("stopped_on_harm", "worse")
    assert len(record["windows"]) == 16
    assert record["ratio"]["high"] < 1


def test_no_traffic():
    traffic = Traffic()
    while traffic.experiment.status == "running":
        traffic.now_s += 1.0
        traffic.experiment.tick(traffic.now_s)
    record = traffic.experiment.record()
    assert (record["status"], record["verdict"]) == ("no_traffic", None)
    assert record["reason"].startswith("pool chats had no traffic in window 1")
    assert traffic.experiment.setting is None


def test_traffic_of_other_pools_is_none_of_this_one():
    experiment = Experiment(CONFIG, OWN, ["chat"], 0.0)
    for now_s in range(1, 22):
        experiment.step(step({1: 9}, {1: "other"}), float(now_s))
    assert experiment.status == "no_traffic"
    assert experiment.record()["windows"][0]["other_tokens_per_s"] == pytest.approx(9.0)
    assert experiment.record()["windows"][0]["idle"] == 1.0


def test_an_idle_pool_is_compared_by_device_time():
    """Requests come one a second, whoever holds: tokens per second are equal, but B needs fewer steps' time."""
    experiment = Experiment(CONFIG, OWN, ["chat"], 0.0)
    now_s, number = 0.0, 0
    while experiment.status == "running":
        number += 1
        now_s += 1.0
        seconds = 0.5 + 0.01 * (number % 7) - 0.2 * (experiment.setting.mode == "auto")
        experiment.step(step({number: 20}, {number: "chat"}, seconds=seconds), now_s)
    record = experiment.record()
    assert record["bootstrap_ratios"]["tokens_per_s"]["estimate"] == pytest.approx(1.0)
    assert (record["compared"], record["verdict"]) == ("device_ms_per_token", "better")
    assert record["ratio"]["estimate"] == pytest.approx(0.53 / 0.33, rel=0.05)
    assert "idle" in record["why_compared"]


def test_unlike_concurrency_is_compared_by_device_time():
    """Without a pause, but the faster arm has fewer requests at once: their number follows from their arrival."""
    experiment = Experiment(CONFIG, OWN, ["chat"], 0.0)
    now_s, number = 0.0, 0
    while experiment.status == "running":
        number += 1
        now_s += STEP_S
        at_once = 2 if experiment.setting.mode == "auto" else 3
        tokens = {number * 4 + i: 6 // at_once for i in range(at_once)}
        experiment.step(step(tokens, dict.fromkeys(tokens, "chat")), now_s)
    record = experiment.record()
    assert record["compared"] == "device_ms_per_token"
    assert (record["medians"]["A"]["concurrency"], record["medians"]["B"]["concurrency"]) == (3, 2)


def test_a_step_is_shared_out_over_pools_by_sequences():
    experiment = Experiment(CONFIG, OWN, ["chat"], 0.0)
    experiment.tick(10.0)
    routes = {1: "chat", 2: "other", 3: "other", 4: "chat"}
    experiment.step(step(dict.fromkeys(routes, 2), routes, seconds=1.0), 11.0)
    experiment.step(step({}, {}, seconds=1.0), 12.0)  # reads prompts only
    experiment.step(step({2: 1}, {2: "other"}, seconds=8.0), 20.0)
    (window,) = experiment.record()["windows"]
    assert (window["tokens"], window["device_seconds"], window["idle"]) == (4, 1.0, 0.8)


def test_latencies_and_drafts_of_the_pool_between_carry_overs():
    experiment = Experiment(CONFIG, OWN, ["chat"], 0.0)

    def hear(seconds: float) -> None:
        experiment.first_token("chat", seconds)
        experiment.tokens("chat", 4, seconds)
        experiment.tokens("chat", 1, None)
        experiment.tokens("other", 1, 99.0)
        experiment.first_token("other", 99.0)

    hear(77.0)  # carried over
    experiment.tick(10.0)
    hear(0.4)
    hear(0.8)
    hear(0.8)
    drafts = [DraftOutcome(1, "lookup", 4, (0, 1, 2), True), DraftOutcome(2, "lookup", 4, (), True)]
    experiment.step(step({1: 4, 2: 1}, {1: "chat", 2: "other"}, drafts), 20.0)
    (window,) = experiment.record()["windows"]
    assert (window["itl_p50_ms"], window["itl_p95_ms"]) == (pytest.approx(200.0), pytest.approx(200.0))
    assert (window["ttft_p50_ms"], window["num_first_tokens"]) == (pytest.approx(800.0), 3)
    assert (window["num_draft_tokens"], window["num_accepted"], window["alpha"]) == (4, 3, 0.75)


def test_it_can_be_ended_once_and_then_asks_for_the_own_settings():
    traffic = Traffic()
    for _ in range(100):
        traffic.step()
    traffic.experiment.end("stopped", "asked to")
    traffic.experiment.end("failed", "too late")
    traffic.experiment.step(step({1: 1}, {1: "chat"}), traffic.now_s + 1)
    traffic.experiment.first_token("chat", 1.0)
    assert traffic.experiment.setting is None
    record = traffic.experiment.record()
    assert (record["status"], record["reason"], record["verdict"]) == ("stopped", "asked to", None)
    assert len(record["windows"]) == 1


def test_the_record_is_json_at_any_time():
    traffic = Traffic(B=13)
    while traffic.experiment.status == "running":
        traffic.step()
        record = json.loads(json.dumps(traffic.experiment.record(), allow_nan=False))
        assert len(record["windows"]) == len(traffic.experiment.windows)


def test_an_arm_changes_only_what_it_says():
    assert changes("off") == {"mode": "off"}
    assert changes("on:lookup+draft_model:8") == {"mode": "on", "proposers": ("lookup", "draft_model"), "k_max": 8}
    experiment = Experiment(replace(CONFIG, arms=("off", "on:lookup")), OWN, ["chat"], 0.0)
    assert experiment.arms["B"] == PoolConfig(mode="on", max_concurrency=5, proposers=("lookup",))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"arms": ("off",)}, "give two different ones"),
        ({"arms": ("off", "off")}, "give two different ones"),
        ({"arms": ("off", "auto", "on")}, "give two different ones"),
        ({"arms": ("off", "fast")}, "arm 'fast' is not understood"),
        ({"arms": ("off:lookup", "on")}, "arm 'off:lookup' is not understood"),
        ({"arms": ("off", "on::3")}, "arm 'on::3' is not understood"),
        ({"arms": ("off", "on:lookup:99")}, "k_max is 99"),
        ({"blocks": 3}, "blocks is 3; allowed is a whole number, 4 to 500"),
        ({"window_s": 0.0}, "window_s is 0.0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_refusals(fields, reason):
    with pytest.raises(ConfigError, match=reason.replace("(", r"\(")):
        replace(CONFIG, **fields)
