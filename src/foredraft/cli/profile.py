"""`foredraft profile`: what a pass costs on this machine, over its number of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.files import check_writable, write_json
from foredraft.cli.kept_profile import kept_or_measured, title
from foredraft.cli.options import model_options
from foredraft.cli.output import console

if TYPE_CHECKING:
    from rich.table import Table

    from foredraft.governor.profile import Point, Profile


@click.command(short_help="Measure what a pass costs.")
@model_options(context=False, drafters=False)
@click.option("--again", is_flag=True, help="Measure even where a profile of this model and machine is kept.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Save the profile.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw ms over rows into a .png or .svg file."
)
def profile(**options: Any) -> None:
    """Measure the time of a pass over 1 to 32 rows after 64 and 1024 tokens, and that of a draft model's step.

    Times are medians of passes whose logits are all wanted, as when drafts are verified; choosing tokens is not in
    them. The profile is kept in ~/.cache/foredraft/profiles for these files, this processor, this number of threads and
    this version; the next call prints it again. `plan --curve` reads what --json saves.
    """
    from foredraft.models import catalog

    check_writable(options["json_path"])
    if options["plot"]:
        from foredraft.cli.plot import check_can_plot

        check_can_plot(options["plot"])
        check_writable(options["plot"])
    paths = {role: catalog.resolve(options[role]) for role in ("model", "draft") if options[role]}
    measured, kept = kept_or_measured(paths, options["threads"], options["draft_vocabulary"], options["again"])
    if kept:
        click.echo(f"measured before ({kept}); --again measures anew", err=True)
    console().print(_table(measured))
    if options["json_path"]:
        write_json(options["json_path"], measured.as_dict())
    if options["plot"]:
        from foredraft.cli.plot import draw_profile

        draw_profile(options["plot"], title(measured), measured)
        click.echo(f"plot written to {options['plot']}")


def _table(measured: Profile) -> Table:
    from rich.table import Table

    caption = (
        f"x: over one row of the model after as many tokens; for the draft, --c of foredraft plan.\n"
        f"share: of the {measured.bandwidth_gb_s:.1f} GB/s that reading memory alone reached. "
        f"Measured {measured.provenance['date']}."
    )
    table = Table(title=title(measured), caption=caption, caption_justify="left")
    for heading in ("", "context", "rows", "ms", "x", "tokens/s", "GB/s", "share"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for role, points in (("model", measured.points), ("draft", measured.draft)):
        for context in sorted({point.context for point in points}):
            table.add_section()
            for point in points:
                if point.context == context:
                    table.add_row(role, *_cells(point, measured))
    return table


def _cells(point: Point, measured: Profile) -> tuple[str, ...]:
    one_row = measured.one_row(point.context)
    return (
        str(point.context),
        str(point.rows),
        f"{point.ms:.2f}",
        f"{point.ms / one_row.ms:.2f}" if one_row else "-",
        f"{point.tokens_per_s:.1f}",
        f"{point.gb_s:.1f}",
        f"{point.gb_s / measured.bandwidth_gb_s:.0%}",
    )
