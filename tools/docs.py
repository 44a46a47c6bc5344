"""Write the generated documentation: cli.md, config.md and metrics.md in docs/, the list of modules in
docs/architecture.md, and the dashboard in examples/grafana/.

With --check, only say what is out of date.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import dashboard

from foredraft.cli.main import cli
from foredraft.config import Named, keys
from foredraft.server.config import SECTIONS
from foredraft.server.metric import Metric
from foredraft.server.metrics import METRICS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ARCHITECTURE = DOCS / "architecture.md"
BEGIN, END = "<!-- modules, written by `make docs` from the modules themselves -->", "<!-- end of modules -->"
CLI_HEAD = """# Command line

<!-- Written by `make docs` from the commands themselves; change those, not this page. -->

Exit status: 0 when all went well, 1 when a check found a difference, 2 for an error (one sentence on standard error
says what to do), 130 after Ctrl-C.
"""
CONFIG_HEAD = """# Configuration file

<!-- Written by `make docs` from the dataclasses of the sections (SECTIONS in server/config.py); change those, not this
page. -->

A file in [TOML](https://toml.io): sections, and keys with values. What is given on the command line wins over the file,
and the file over the defaults below. An unknown section or key, a value of the wrong type and one outside its range are
errors that say what is allowed. `examples/foredraft.toml` is one to begin with.

Sections with NAME come as often as you need them, each with a name of its own: up to 64 letters, digits, - and _.
[server.md](server.md#pools-and-routes) says what pools and routes are.
"""
METRICS_HEAD = """# Metrics

<!-- Written by `make docs` from server/metrics.py and governor_metrics.py; change those, not this page. -->

What `/metrics` tells Prometheus. Counters, no ratios: rates and shares over any window follow in PromQL, below each
metric. The labels `pool`, `route` and `proposer` have values from the configuration only. Names that vLLM has too (with
its own prefix) mean the same here; so mean acceptance length counts the bonus token. Alpha is the chance that a drafted
token is accepted given that all before it were: it says whether drafting pays, while the acceptance rate falls with k
even where alpha does not.
"""


def default(option: click.Option) -> str:
    if option.required:
        return "required"
    if option.is_flag or not isinstance(option.default, int | float | str):
        return ""
    return f"`{option.default}`"


def option_row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if not option.is_flag:
        choices = "\\|".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
        names += f" {choices or option.metavar or option.type.name.upper()}"
    return f"| {names} | {option.help} | {default(option)} |"


def command_sections(name: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for child, subcommand in command.commands.items():
            yield from command_sections(f"{name} {child}", subcommand)
        return
    usage = f"`{' '.join(['foredraft', name, *command.collect_usage_pieces(click.Context(command))])}`"
    lines = [f"## foredraft {name}", "", usage, "", inspect.cleandoc(command.help or ""), ""]
    options = [option_row(p) for p in command.params if isinstance(p, click.Option)]
    if options:
        lines += ["| option | meaning | default |", "|---|---|---|", *options, ""]
    yield "\n".join(lines)


def cli_page() -> str:
    sections = [text for name, command in cli.commands.items() for text in command_sections(name, command)]
    return "\n".join([CLI_HEAD, *sections])


def config_page() -> str:
    lines = [CONFIG_HEAD]
    for name, kind in SECTIONS.items():
        is_named = isinstance(kind, Named)
        section = kind.section if is_named else kind
        lines += [
            f"## [{name}.NAME]" if is_named else f"## [{name}]",
            "",
            "| key | meaning | allowed | default |",
            "|---|---|---|---|",
        ]
        for key in keys(section).values():
            value = list(key.default) if isinstance(key.default, tuple) else key.default
            shown = "not set" if value is None else f"`{json.dumps(value)}`"
            lines += [f"| `{key.name}` | {key.help} | {key.allowed} | {shown} |"]
        lines += [""]
    return "\n".join(lines)


def metric_section(metric: Metric) -> Iterator[str]:
    labels = f" by {', '.join(f'`{label}`' for label in metric.labels)}" if metric.labels else ""
    yield f"## {metric.name}\n\n{metric.kind.capitalize()}{labels}. {metric.help}\n"
    if metric.values:
        yield "".join(f"- `{value}`: {meaning}\n" for value, meaning in metric.values.items())
    for question, query in metric.queries.items():
        lines = query.replace(" / ", "\n/ ").replace(" + sum", "\n  + sum")
        yield f"{question[0].upper()}{question[1:]}:\n\n```promql\n{lines}\n```\n"


def metrics_page() -> str:
    return "\n".join([METRICS_HEAD, *(text for metric in METRICS for text in metric_section(metric))])


def first_paragraph(path: Path) -> str:
    """What a source file says about itself: the start of its docstring, or of the comment it begins with."""
    text = path.read_text()
    if path.suffix == ".py":
        lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    else:
        lines = [line.removeprefix("//").strip() if line.startswith("//") else "" for line in text.splitlines()]
    paragraph = lines[: lines.index("")] if "" in lines else lines
    return " ".join(paragraph).strip().replace("<", "\\<").replace("|", "\\|")


def modules() -> str:
    files = sorted((ROOT / "src" / "foredraft").rglob("*.py")) + sorted((ROOT / "csrc").rglob("*.[ch]pp"))
    rows = [(path.relative_to(ROOT).as_posix().removeprefix("src/foredraft/"), first_paragraph(path)) for path in files]
    return "\n".join(
        ["| module | what it is |", "|---|---|", *(f"| `{name}` | {what} |" for name, what in rows if what)]
    )


def architecture_page() -> str:
    before, _, rest = ARCHITECTURE.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n\n{modules()}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    stale = []
    pages = {
        DOCS / "cli.md": cli_page(),
        DOCS / "config.md": config_page(),
        DOCS / "metrics.md": metrics_page(),
        ARCHITECTURE: architecture_page(),
        ROOT / "examples" / "grafana" / "foredraft.json": dashboard.page(),
    }
    for path, text in pages.items():
        if path.exists() and path.read_text() == text:
            continue
        if "--check" in sys.argv[1:]:
            stale.append(str(path.relative_to(ROOT)))
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"{' and '.join(stale)}: out of date; run make docs")


if __name__ == "__main__":
    main()
