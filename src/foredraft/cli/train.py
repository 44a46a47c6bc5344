"""`foredraft train`: making what drafts well for a target: data, learned drafters, a cut vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from foredraft.cli import vocabulary
from foredraft.cli.files import check_writable, read_json, read_text, replacing
from foredraft.cli.options import max_tokens_option
from foredraft.cli.training import check_can_train, run_training
from foredraft.errors import ConfigError

FILE = click.Path(path_type=Path)
_TARGET = click.option(
    "--target", required=True, metavar="MODEL", help="Catalog name (`foredraft pull --list`) or GGUF file."
)


@click.group(short_help="Make what drafts well for a model.")
def train() -> None:
    """Make what drafts well for a model, from text that it reads or writes.

    For a learned drafter make prompts, let the model answer them (data), and train a head on that.
    """


train.add_command(vocabulary.vocabulary)


@train.command()
@click.option("--out", type=FILE, required=True, metavar="FILE", help="Where to write the prompts (JSON lines).")
@click.option("--count", type=click.IntRange(1), default=4000, show_default=True, help="How many.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed and packages, same prompts.")
@click.option(
    "--never",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Keep out what shares ten words in a row with this file (text or JSON lines). Can be repeated.",
)
def prompts(out: Path, count: int, seed: int, never: tuple[Path, ...]) -> None:
    """Make prompts from the code and docs of installed Python packages, and general ones.

    The prompts of `foredraft bench` are always kept out, and with --never those of other benchmarks.
    """
    import json
    from collections import Counter

    from foredraft.bench.workloads import workloads
    from foredraft.train.prompts import make_prompts, texts_in, write_prompts

    check_writable(out)
    texts = [prompt.text for each in workloads().values() for prompt in each]
    for path in never:
        text = read_text(path)
        try:
            texts += [found for line in text.splitlines() if line.strip() for found in texts_in(json.loads(line))]
        except ValueError:
            texts.append(text)
    made = make_prompts(count, seed, texts)
    write_prompts(out, made)
    kept_out = ", ".join(["the prompts of foredraft bench", *(path.name for path in never)])
    click.echo(f"{len(made)} prompts in {out}; none shares ten words in a row with {kept_out}")
    for license, number in Counter(prompt.license for prompt in made).most_common():
        click.echo(f"{number:6} {license}")


@train.command()
@_TARGET
@click.option("--prompts", "files", type=FILE, multiple=True, required=True, metavar="FILE", help="Can be repeated.")
@click.option("--out", type=FILE, required=True, metavar="DIR", help="Folder for the data; a run goes on from there.")
@max_tokens_option(256)
@click.option(
    "--concurrency", type=click.IntRange(1, 1024), default=32, show_default=True, help="Answers written at once."
)
@click.option("--limit-tokens", type=click.IntRange(1), metavar="N", help="Stop when the answers have so many tokens.")
@click.option("--threads", type=int, metavar="N", help="Threads to compute with; default: one per core.")
def data(target: str, files: tuple[Path, ...], out: Path, limit_tokens: int | None, **options: Any) -> None:
    """Let the target answer prompts, and keep its answers with its hidden states.

    A run that ended early goes on with the first prompt that no finished file answers.
    """
    from foredraft.cli.training import Meter
    from foredraft.train.collect import Collector
    from foredraft.train.prompts import read_prompts

    asked = read_prompts(files)
    if not asked:
        raise ConfigError("there are no prompts; make some with foredraft train prompts")
    collector = Collector(target, out, **options)
    with Meter(limit_tokens) as meter:
        progress = collector.run(asked, limit_tokens, meter.tell)
    click.echo(f"{progress.num_documents} answers with {progress.num_tokens} tokens in {out}")


_FOLDERS = (
    _TARGET,
    click.option(
        "--data", "folder", type=FILE, required=True, metavar="DIR", help="What foredraft train data has made."
    ),
    click.option(
        "--out", type=FILE, required=True, metavar="DIR", help="Folder for the head; a run goes on from there."
    ),
)
_SCHEDULE = (
    click.option(
        "--epochs", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True, help="Over the data."
    ),
    click.option("--learning-rate", type=click.FloatRange(0, min_open=True), default=1.5e-3, show_default=True),
    click.option("--batch-tokens", type=click.IntRange(1), default=512, show_default=True, help="Of answers, a step."),
    click.option(
        "--interval", type=click.IntRange(1), default=50, show_default=True, help="Steps between checkpoints."
    ),
    click.option(
        "--patience", type=click.IntRange(1), default=5, show_default=True, help="End after so many without a gain."
    ),
    click.option(
        "--positions", type=click.IntRange(1, 16), default=3, show_default=True, help="Tokens ahead to learn."
    ),
    click.option(
        "--draft-vocab",
        type=click.IntRange(1),
        default=4096,
        show_default=True,
        help="Most frequent tokens to guess among.",
    ),
    click.option("--seed", type=int, default=0, show_default=True),
    click.option(
        "--threads", type=click.IntRange(1), metavar="N", help="Threads to compute with; default: one per core."
    ),
)


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that all heads are trained with."""
    for option in reversed((*_FOLDERS, *_SCHEDULE)):
        function = option(function)
    return function


@train.command()
@_with_options
def eagle3(
    target: str, folder: Path, out: Path, positions: int, draft_vocab: int, threads: int | None, **schedule: Any
) -> None:
    """Train an EAGLE-3 head: one layer that reads hidden states of three depths of the target.

    A run that ended early, by Ctrl-C or otherwise, goes on from its last checkpoint when the same command is repeated.
    """
    check_can_train()
    from foredraft.train.eagle3 import Eagle3
    from foredraft.train.reader import Reader
    from foredraft.train.target import TargetWeights

    def make(weights: TargetWeights, reader: Reader) -> Eagle3:
        return Eagle3(weights, reader.meta.taps, reader.most_frequent(draft_vocab), positions, schedule["seed"])

    run_training(make, target, folder, out, threads, schedule)


@train.command()
@_with_options
def medusa(
    target: str, folder: Path, out: Path, positions: int, draft_vocab: int, threads: int | None, **schedule: Any
) -> None:
    """Train Medusa heads: one for each position, all of which read the target's last hidden state.

    A run that ended early, by Ctrl-C or otherwise, goes on from its last checkpoint when the same command is repeated.
    """
    check_can_train()
    from foredraft.train.medusa import Medusa
    from foredraft.train.reader import Reader
    from foredraft.train.target import TargetWeights

    def make(weights: TargetWeights, reader: Reader) -> Medusa:
        return Medusa(weights, reader.most_frequent(draft_vocab), positions, schedule["seed"])

    run_training(make, target, folder, out, threads, schedule)


@train.command()
@_with_options
def mtp(
    target: str, folder: Path, out: Path, positions: int, draft_vocab: int, threads: int | None, **schedule: Any
) -> None:
    """Train an MTP block: one more layer of the target, which goes on from its last hidden state.

    The block guesses among all tokens; the most frequent ones are those that it learns from. A run that ended early, by
    Ctrl-C or otherwise, goes on from its last checkpoint when the same command is repeated.
    """
    check_can_train()
    from foredraft.train.mtp import Mtp
    from foredraft.train.reader import Reader
    from foredraft.train.target import TargetWeights

    def make(weights: TargetWeights, reader: Reader) -> Mtp:
        return Mtp(weights, reader.most_frequent(draft_vocab), positions, schedule["seed"])

    run_training(make, target, folder, out, threads, schedule)


@train.command()
@click.argument("folder", type=FILE, metavar="DIR")
@click.option("--out", type=FILE, required=True, metavar="FILE", help="A name that ends in .png, .svg or .pdf.")
def plot(folder: Path, out: Path) -> None:
    """Draw the held-out acceptance over the tokens that a head was trained on."""
    from foredraft.cli.plot import check_can_plot, draw_training
    from foredraft.train.card import read_record

    check_can_plot(out)
    check_writable(out)
    draw_training(out, read_record(folder))


@train.command()
@click.argument("folder", type=FILE, metavar="DIR")
@click.option("--bench", type=FILE, required=True, metavar="FILE", help="What foredraft bench --json has written.")
def card(folder: Path, bench: Path) -> None:
    """Write a trained head's card again, with the speed-up that a benchmark has measured."""
    from foredraft.train.card import CARD, read_record
    from foredraft.train.card import card as written

    text = written(read_record(folder), read_json(bench))
    with replacing(folder / CARD) as part:
        part.write_text(text, encoding="utf-8")
