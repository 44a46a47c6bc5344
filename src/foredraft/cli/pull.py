"""`foredraft pull`: fetch models of the catalog."""

from __future__ import annotations

import click

from foredraft.errors import ConfigError


@click.command(short_help="Fetch models by name.")
@click.argument("name", nargs=-1)
@click.option("--list", "is_list", is_flag=True, help="Show the models that can be pulled, and which are there.")
def pull(name: tuple[str, ...], is_list: bool) -> None:
    """Fetch models by name into ~/.cache/foredraft/models (FOREDRAFT_MODELS names another folder).

    A model that is there already is left alone; an interrupted pull goes on from the parts that are finished.
    """
    if is_list:
        _print_catalog()
        return
    if not name:
        raise ConfigError("no model is named; foredraft pull --list shows which there are")
    from foredraft.models import catalog

    for one in name:
        catalog.lookup(one)  # refuse an unknown name before anything is fetched
    for one in name:
        fetch(one)


def fetch(name: str) -> None:
    """Pull one model with a progress bar on standard error; say where it is."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    from foredraft.cli.output import progress
    from foredraft.models import pull as models

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with progress(*columns) as bar:
        task = bar.add_task(name, total=None)
        path = models.pull(name, lambda done, total: bar.update(task, completed=done, total=total))
    click.echo(f"{name}: {path}")


def _print_catalog() -> None:
    from rich.table import Table

    from foredraft.cli.output import console
    from foredraft.models import catalog

    folder = catalog.model_directory()
    table = Table(caption=f"kept in {folder}", caption_justify="left")
    for heading in ("name", "size", "license", "file", "here"):
        table.add_column(heading, justify="right" if heading == "size" else "left")
    for model in catalog.MODELS.values():
        path = folder / model.file_name
        is_here = path.is_file() and path.stat().st_size == model.num_bytes
        size = f"{model.num_bytes / 1e6:,.0f} MB"
        table.add_row(model.name, size, model.license, model.file_name, "yes" if is_here else "no")
    console().print(table)
