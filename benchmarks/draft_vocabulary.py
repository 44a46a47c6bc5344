"""What a trimmed vocabulary saves a draft model and what it misses; benchmarks/drafters.md says what the figures are.

    python benchmarks/draft_vocabulary.py texts --model MODEL --out TEXTS
    python benchmarks/draft_vocabulary.py drafts --draft MODEL --texts TEXTS --vocabulary N|FILE ... --json FILE
    python benchmarks/draft_vocabulary.py passes --draft MODEL --vocabulary N|FILE ... --json FILE

At temperature 0 a draft model's choices after the target's own text decide what becomes of every draft, however the
text is cut into drafts. So one reading of it says for every vocabulary what drafts of 4 tokens bring, without noise.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np

from foredraft import LLM, SamplingParams, Speculation, _native, ops
from foredraft.bench.paired import geometric_mean
from foredraft.bench.workloads import select
from foredraft.cli.files import check_writable, write_json
from foredraft.cli.options import prompt_tokens, split_names
from foredraft.core import BoolArray
from foredraft.governor.profile import Network, measure, pass_bytes
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PAGE_SIZE, PagedKV
from foredraft.models import catalog, gguf
from foredraft.models.decoder import Decoder
from foredraft.models.tokenizer import Tokenizer
from foredraft.models.vocabulary import kept_tokens
from foredraft.provenance import provenance

ALL, CHUNK, K = "all", 256, 4
CONTEXT = 64  # tokens before the pass that is timed

json_option = click.option("--json", "json_path", required=True, type=click.Path(path_type=Path))
vocabulary_option = click.option("--vocabulary", "wanted", multiple=True, required=True, metavar="N|FILE")


@click.group()
def main() -> None:
    """Measure trimmed vocabularies."""


@main.command()
@click.option("--model", required=True)
@click.option("--workloads", default="write,ideas,chat,edit", show_default=True)
@click.option("--max-tokens", type=int, default=400, show_default=True)
@click.option("--out", required=True, type=click.Path(path_type=Path))
def texts(model: str, workloads: str, max_tokens: int, out: Path) -> None:
    """Let the target answer the workloads of `foredraft bench` at temperature 0; token ids as JSON lines."""
    llm = LLM(model, max_sequences=4)
    with out.open("w") as file:
        for name, prompts in select(split_names(workloads)).items():
            tokens = [prompt_tokens(llm, prompt.text, raw=False) for prompt in prompts]
            params = [SamplingParams(max_tokens=min(prompt.max_tokens, max_tokens)) for prompt in prompts]
            results = llm.generate(tokens, params, Speculation("off"))
            for prompt, ids, result in zip(prompts, tokens, results, strict=True):
                row = {"workload": name, "prompt": prompt.name, "prompt_ids": ids, "ids": result.token_ids}
                file.write(json.dumps(row) + "\n")


@main.command()
@click.option("--draft", required=True)
@click.option("--texts", "texts_path", required=True, type=click.Path(path_type=Path))
@vocabulary_option
@json_option
def drafts(draft: str, texts_path: Path, wanted: Sequence[str], json_path: Path) -> None:
    """Coverage of the target's text, and what drafts of 4 tokens bring, with and without the context's own tokens."""
    check_writable(json_path)
    path = catalog.resolve(draft)
    decoder = Decoder(gguf.read(path), ops.create("native", None))
    vocabularies = _vocabularies(path, wanted)
    rows = [json.loads(line) for line in texts_path.read_text().splitlines()]
    outcomes: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        outcomes.setdefault(row["workload"], []).append(_read(decoder, vocabularies, row["prompt_ids"], row["ids"]))
        click.echo(f"{row['workload']} {row['prompt']}", err=True)
    found = [
        {"workload": workload, "vocabulary": name, **_together([each[name] for each in texts])}
        for workload, texts in outcomes.items()
        for name in texts[0]
    ]
    options = {"k": K, "vocabularies": [Path(name).name for name in wanted], "texts": texts_path.name}
    write_json(json_path, {"provenance": provenance({"draft": path}, options), "drafts": found})
    for one in found:
        click.echo(
            f"{one['workload']:6} {one['vocabulary']:24} covers {one['coverage']:.4f}, alpha {one['alpha']:.3f}, "
            f"{one['tokens_per_step']:.3f} tokens a step"
        )


@main.command()
@click.option("--draft", required=True)
@click.option("--rounds", type=int, default=40, show_default=True)
@click.option("--threads", type=int)
@click.option("--cpu-time", is_flag=True, help="Of the process, which says more on a busy machine; with --threads 1.")
@vocabulary_option
@json_option
def passes(
    draft: str, rounds: int, threads: int | None, cpu_time: bool, wanted: Sequence[str], json_path: Path
) -> None:
    """Bytes and time of a draft pass over one row: all vocabularies in turn, every second round backwards."""
    check_writable(json_path)
    path, op_set = catalog.resolve(draft), ops.create("native", threads)
    file = gguf.read(path)
    masks = _vocabularies(path, wanted)
    kept = {name: None if name == ALL else np.flatnonzero(mask).astype(np.int32) for name, mask in masks.items()}
    decoders = {name: Decoder(file, op_set, tokens) for name, tokens in kept.items()}
    clock = time.process_time if cpu_time else time.perf_counter
    times_ms: dict[str, list[float]] = {name: [] for name in decoders}
    for number in range(rounds):
        for name in list(decoders) if number % 2 == 0 else reversed(list(decoders)):
            [point] = measure(Network.of(decoders[name]), [1], [CONTEXT], rounds=1, clock=clock)
            times_ms[name].append(point.ms)
    found = []
    for name, decoder in decoders.items():
        ratio = geometric_mean(mine / whole for mine, whole in zip(times_ms[name], times_ms[ALL], strict=True))
        assert ratio is not None
        found.append(
            {
                "vocabulary": name,
                "num_kept": decoder.num_logits,
                "num_bytes": pass_bytes(decoder, CONTEXT),
                "output_bytes": decoder.output.num_bytes,
                "median_ms": statistics.median(times_ms[name]),
                "min_ms": min(times_ms[name]),
                "over_all": vars(ratio),
                "ms": times_ms[name],
            }
        )
        click.echo(
            f"{name:20} {decoder.num_logits:7} rows, {found[-1]['num_bytes'] / 1e6:.1f} MB, median "
            f"{found[-1]['median_ms']:.2f} ms, least {found[-1]['min_ms']:.2f} ms, over all {ratio.mean:.3f} "
            f"({ratio.low or 0:.3f} to {ratio.high or 0:.3f})"
        )
    how = {
        "rounds": rounds,
        "cpu_time": cpu_time,
        "context": CONTEXT,
        "threads": _native.num_threads(),
        "isa": _native.isa(),
    }
    write_json(json_path, {"provenance": provenance({"draft": path}, {**how, "context": CONTEXT}), "passes": found})


def _vocabularies(path: Path, wanted: Sequence[str]) -> dict[str, BoolArray]:
    """Masks over the draft model's tokens by name: all of them, and those asked for."""
    tokenizer = Tokenizer.from_metadata(gguf.read(path).metadata)
    known = np.array([not tokenizer.is_padding(token) for token in range(tokenizer.vocab_size)])
    masks = {ALL: known}
    for name in wanted:
        masks[Path(name).name] = np.isin(np.arange(len(known)), kept_tokens(name, tokenizer, known))
    return masks


def _read(
    decoder: Decoder, vocabularies: Mapping[str, BoolArray], prompt: Sequence[int], answer: Sequence[int]
) -> dict[str, Any]:
    """By vocabulary: which of the answer's tokens it covers, and which of them the draft model would have drafted."""
    seen = np.zeros(len(vocabularies[ALL]), np.bool_)
    seen[list(prompt)] = True
    found: dict[str, Any] = {}
    for logits, token in zip(_logits(decoder, [*prompt, *answer], len(prompt)), answer, strict=True):
        for name, mask in vocabularies.items():
            for label, drafted in ((name, mask), (f"{name} + context", mask | seen)):
                if label == f"{ALL} + context":
                    continue
                each = found.setdefault(label, {"covered": [], "right": []})
                each["covered"].append(bool(drafted[token]))
                each["right"].append(int(np.where(drafted, logits, -np.inf).argmax()) == token)
        seen[token] = True
    return found


def _logits(decoder: Decoder, tokens: Sequence[int], start: int) -> Iterator[np.ndarray]:
    """Logits before each token from `start` on."""
    arch = decoder.arch
    kv = PagedKV(arch.num_layers, arch.num_kv_heads, arch.head_dim, -(-len(tokens) // PAGE_SIZE), share_prefixes=False)
    sequence = kv.open([])
    for first, last in pairwise([*range(0, len(tokens) - 1, CHUNK), len(tokens) - 1]):
        part = tokens[first:last]
        kv.reserve(sequence, len(part))
        builder = BatchBuilder()
        builder.add(sequence, part, [i for i in range(len(part)) if first + i >= start - 1])
        yield from decoder.forward(builder.build(), kv)
        kv.commit(sequence, part)


def _together(answers: Sequence[Mapping[str, Sequence[bool]]]) -> dict[str, Any]:
    steps = accepted = rejected = 0
    for answer in answers:
        one = _steps(answer["right"])
        steps, accepted, rejected = steps + one[0], accepted + one[1], rejected + one[2]
    covered = [covers for answer in answers for covers in answer["covered"]]
    return {
        "num_tokens": len(covered),
        "coverage": statistics.fmean(covered),
        "num_steps": steps,
        "num_accepted": accepted,
        "alpha": accepted / (accepted + rejected),
        "tokens_per_step": len(covered) / steps,
    }


def _steps(right: Sequence[bool]) -> tuple[int, int, int]:
    """Steps, accepted tokens and refusals of a text, with K drafted tokens in every step after the first."""
    steps, accepted, rejected, position = 1, 0, 0, 1
    while position < len(right):
        run = 0
        while run < K and position + run < len(right) and right[position + run]:
            run += 1
        accepted += run
        rejected += run < K and position + run < len(right)
        steps, position = steps + 1, position + run + 1
    return steps, accepted, rejected


if __name__ == "__main__":
    main()
