"""What the governor's decisions bring at the costs of a quiet machine: real tokens and rows, times from the profile.

A shared machine's speed varies more within a minute than the arms differ. Which drafts were made and what was kept of
them is real here; only the seconds of a pass are those of the profile, so that the figures repeat.

    python benchmarks/governor_modelled.py --model smollm2-135m --json FILE
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from foredraft import SamplingParams
from foredraft.bench.arms import parse_arms
from foredraft.bench.workloads import select
from foredraft.cli.options import prompt_tokens
from foredraft.engine.llm import LLM
from foredraft.governor.plan import PassCost
from foredraft.provenance import provenance
from foredraft.steps import StepRecord


@click.command()
@click.option("--model", required=True)
@click.option("--arms", default="off,on:lookup:2,on:lookup:8,auto", show_default=True, help="First: baseline.")
@click.option("--workloads", default="quote,chat,write,ideas", show_default=True)
@click.option("--concurrency", default="1,2,4,8,16", show_default=True)
@click.option("--rounds", type=int, default=3, show_default=True, help="auto learns from one to the next.")
@click.option("--max-tokens", type=int, default=64, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(json_path: Path | None, **options: object) -> None:
    arms = parse_arms(str(options["arms"]))
    concurrencies = [int(count) for count in str(options["concurrency"]).split(",")]
    llm = LLM(str(options["model"]), max_sequences=max(concurrencies), context_length=4096, proposers=["lookup"])
    cost = llm.governor.curves.target.cost  # before any step corrects it
    records: list[StepRecord] = []
    llm.engine.on_step.append(records.append)
    rows = []
    for workload, prompts in select(str(options["workloads"]).split(",")).items():
        texts = [prompt_tokens(llm, prompt.text, raw=False) for prompt in prompts]
        for count in concurrencies:
            batch = [texts[i % len(texts)] for i in range(count)]
            context = sum(map(len, batch)) // count
            for number in range(int(str(options["rounds"]))):
                rates = {}
                for arm in arms:
                    records.clear()
                    params = SamplingParams(max_tokens=int(str(options["max_tokens"])), seed=0)
                    llm.generate(batch, params, arm.speculation, route=workload)
                    rates[arm.name] = _rate(records, count, context, cost)
                ratios = {name: rate / rates[arms[0].name] for name, rate in rates.items() if rates[arms[0].name]}
                rows.append({"workload": workload, "concurrency": count, "round": number, "ratios": ratios})
                print(workload, count, number, {name: round(ratio, 3) for name, ratio in ratios.items()}, flush=True)
    if json_path:
        source = provenance(llm.files, options)
        json_path.write_text(json.dumps({"provenance": source, "cost": vars(cost), "rows": rows}, default=list) + "\n")


def _rate(records: list[StepRecord], count: int, context: int, cost: PassCost) -> float:
    """Tokens per second while all sequences are written, with a pass taking what the profile says."""
    steps = [record for record in records if not record.num_prompt_rows and len(record.num_tokens) == count]
    seconds = sum(cost(record.num_rows, count * context, record.num_rows * context) for record in steps)
    return sum(sum(record.num_tokens.values()) for record in steps) / seconds if seconds else 0.0


if __name__ == "__main__":
    main()
