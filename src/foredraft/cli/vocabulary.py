"""`foredraft train vocabulary`: the most frequent tokens of some text, for --draft-vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foredraft.cli.files import check_writable, read_text, write_json
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from foredraft.models.tokenizer import Tokenizer


@click.command(short_help="Rank tokens by how often they come.")
@click.option(
    "--model", required=True, metavar="MODEL", help="Whose tokens: the target, or a model that drafts for it."
)
@click.option("--size", type=int, default=16384, show_default=True, help="Tokens to keep.")
@click.option(
    "--out", "out_path", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Where the result goes."
)
@click.argument("texts", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TEXT...")
def vocabulary(model: str, size: int, out_path: Path, texts: tuple[Path, ...]) -> None:
    """Rank the model's tokens by how often they come in TEXT, and save the first of them.

    TEXT is UTF-8 text, or JSON lines with the text under "text" where its name ends in .jsonl. Best is text of the kind
    that the target will write. Tokens that never come are ranked by their ids.
    """
    from foredraft.models import catalog, gguf
    from foredraft.models.tokenizer import Tokenizer
    from foredraft.models.vocabulary import ranking

    check_writable(out_path)
    tokenizer = Tokenizer.from_metadata(gguf.read(catalog.resolve(model)).metadata)
    made = ranking(tokenizer, (tokens for path in texts for tokens in _tokens(path, tokenizer)), size)
    write_json(out_path, made)
    click.echo(
        f"{size} tokens written to {out_path}: {made['coverage']:.2%} of the {made['num_counted']} tokens counted"
    )


def _tokens(path: Path, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """The tokens of each text in a file."""
    text = read_text(path)
    if path.suffix != ".jsonl":
        yield tokenizer.encode(text, add_bos=False)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield tokenizer.encode(_text(line, f"{path}, line {number}"), add_bos=False)


def _text(line: str, source: str) -> str:
    try:
        found = json.loads(line)["text"]
    except (ValueError, TypeError, KeyError, RecursionError):
        found = None
    if not isinstance(found, str):
        raise ConfigError(f'{source} is not an object with text under "text", such as {{"text": "Hello."}}')
    return found
