"""The `foredraft` command: its subcommands, and the one place where errors become exit statuses.

Command modules import only click and light modules at the top; everything heavy (numpy, the engine, rich) is imported
inside the command that needs it, so that `foredraft --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from foredraft.cli import bench, chat, check, demo, experiment, generate, plan, profile, pull, replay, serve, train
from foredraft.errors import ForedraftError

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from foredraft import __version__

        click.echo(f"foredraft {__version__}")
        ctx.exit()


@click.group(
    name="foredraft", context_settings={"help_option_names": ["-h", "--help"]}, epilog="Documentation: docs/cli.md"
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Run GGUF language models with speculative decoding that never changes the output."""


for _command in (
    pull.pull,
    generate.generate,
    chat.chat,
    serve.serve,
    bench.bench,
    profile.profile,
    plan.plan,
    replay.replay,
    train.train,
    experiment.experiment,
    check.check,
    demo.demo,
):
    cli.add_command(_command)


def _fail(message: str) -> int:
    click.echo(f"error: {message}", err=True)
    return EXIT_USER_ERROR


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, 1 (a check found a difference), 2 (a user's error) or 130.

    Where the reader of the output goes away (`foredraft ... | head`), click ends the process quietly with status 1.
    """
    try:
        status = cli.main(arguments, prog_name="foredraft", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except ForedraftError as error:
        return _fail(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USER_ERROR
    except click.ClickException as error:
        return _fail(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED


def main() -> None:
    """Entry point of the `foredraft` script."""
    sys.exit(run())
