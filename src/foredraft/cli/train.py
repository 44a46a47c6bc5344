"""`foredraft train`: making what drafts well for a target."""

from __future__ import annotations

import click

from foredraft.cli import vocabulary


@click.group(short_help="Make what drafts well for a model.")
def train() -> None:
    """Make what drafts well for a model, from text that it reads or writes."""


train.add_command(vocabulary.vocabulary)
