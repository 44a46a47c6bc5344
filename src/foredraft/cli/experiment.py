"""`foredraft experiment`: an A/B on a pool of a running server, or on a model of its own."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.files import check_writable, read_text, write_json
from foredraft.cli.options import split_names
from foredraft.cli.output import console, progress
from foredraft.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from rich.table import Table

VARIABLE = "FOREDRAFT_ADMIN_KEY"
POLL_S = 0.5
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class AdminApi:
    """The admin API of the server at `url`, with a key where it asks for one."""

    url: str
    key: str

    def __call__(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Its answer.

        Raises:
            UnavailableError: there is no answer, or none of such a server.
            ConfigError: it refuses, in its own words.
        """
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(
                f"{self.url.rstrip('/')}{path}", data, {**headers, "Content-Type": "application/json"}, method=method
            )
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise ConfigError(f"{self.url} refuses: {_reason(error)}") from None
        except (OSError, ValueError) as error:  # also an address that is none, and an answer that is not JSON
            reason = getattr(error, "reason", error)
            raise UnavailableError(
                f"{self.url} does not answer ({reason}); give the --url of a running server"
            ) from None
        if not isinstance(answer, dict):
            raise UnavailableError(f"{self.url} is another kind of server; give the --url of `foredraft serve`")
        return answer


def _reason(error: urllib.error.HTTPError) -> str:
    hints = {
        401: f"; set {VARIABLE} or give --admin-key-file",
        404: "; the admin API is there only if the server has admin keys",
    }
    try:
        message = str(json.load(error)["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        message = f"status {error.code}"
    return message + hints.get(error.code, "")


@click.command(short_help="Find out on a running server whether drafts pay.")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, metavar="URL", help="Of the server.")
@click.option(
    "--admin-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Holds the admin key; else it is read from the environment variable {VARIABLE}.",
)
@click.option("--pool", default="default", show_default=True, metavar="NAME", help="The pool to try the arms on.")
@click.option(
    "--arms",
    default="off,auto",
    show_default=True,
    metavar="A,B",
    help="The baseline and the candidate, each mode[:proposers joined by +[:k]].",
)
@click.option("--window", type=float, default=30.0, show_default=True, help="Seconds to measure in each window.")
@click.option(
    "--carry-over",
    type=float,
    default=1.0,
    show_default=True,
    help="Least seconds to leave out after a switch; the longest answer seen so far raises it.",
)
@click.option("--blocks", type=int, default=12, show_default=True, help="Blocks of four windows.")
@click.option("--seed", type=int, help="Draws the order of the arms; default: a fresh one, which the record has.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Save the record.")
def experiment(**options: Any) -> None:
    """Let two arms take turns on a pool, while its requests come in, until they are told apart.

    Whole windows belong to one arm, in blocks ABBA or BAAB. The experiment ends early if the candidate does harm, and
    else after all blocks with a verdict. If that is better or worse, the server gives the pool the better arm's
    settings; after every other end the pool has its own settings back. Ctrl-C stops it.
    """
    check_writable(options["json_path"])
    if not options["url"].startswith(("http://", "https://")):
        raise ConfigError(f"--url is {options['url']!r}; it begins with http:// or https://")
    api = AdminApi(options["url"], _admin_key(options["admin_key_file"]))
    wish = {
        "pool": options["pool"],
        "arms": split_names(options["arms"]),
        "window_s": options["window"],
        "carry_over_s": options["carry_over"],
        "blocks": options["blocks"],
        "seed": options["seed"],
    }
    record = api("POST", "/admin/experiments", wish)
    try:
        record = _followed(lambda: api("GET", f"/admin/experiments/{record['id']}"), record)
    except KeyboardInterrupt:
        _report(api("DELETE", f"/admin/experiments/{record['id']}"), options["json_path"])
        raise
    except (ConfigError, UnavailableError) as error:
        raise UnavailableError(f"{error}; if the server runs, so does experiment {record['id']}") from None
    _report(record, options["json_path"])
    if record["status"] in ("no_traffic", "failed"):
        raise UnavailableError(record["reason"])


def _admin_key(file: Path | None) -> str:
    if file is None:
        return os.environ.get(VARIABLE, "")
    keys = [line.partition("#")[0].split() for line in read_text(file).splitlines()]
    keys = [words for words in keys if words]
    if len(keys) != 1:
        raise ConfigError(f"{file} holds {len(keys)} keys; give a file with one")
    return keys[0][-1]  # a name may stand before it, as in the server's own file


def _followed(news: Callable[[], dict[str, Any]], record: dict[str, Any]) -> dict[str, Any]:
    """The record at the experiment's end, with a progress bar until then."""
    with progress() as bar:
        task = bar.add_task("carry-over", total=len(record["design"]))
        while record["status"] == "running":
            time.sleep(POLL_S)
            record = news()
            done = len(record["windows"])
            bar.update(task, completed=done, description=f"window {done + 1}, {' vs '.join(record['config']['arms'])}")
    return record


def _report(record: Mapping[str, Any], json_path: Path | None) -> None:
    """What came of it, for people and into the file."""
    if json_path:
        write_json(json_path, record)
    out = console()
    out.print(_windows(record))
    if record["ratio"]:
        out.print(_comparison(record))
    out.print(f"{record['verdict'] or record['status']}: {record['reason']}")


COLUMNS: dict[str, tuple[str, int]] = {  # heading: figure, digits
    "s": ("seconds", 1),
    "tokens": ("tokens", 0),
    "tokens/s": ("tokens_per_s", 1),
    "device ms/token": ("device_ms_per_token", 2),
    "ITL p50 ms": ("itl_p50_ms", 1),
    "p95 ms": ("itl_p95_ms", 1),
    "TTFT p50 ms": ("ttft_p50_ms", 0),
    "alpha": ("alpha", 2),
    "at once": ("concurrency", 1),
    "idle share": ("idle", 2),
    "left out s": ("carry_over_s", 1),
}


def _windows(record: Mapping[str, Any]) -> Table:
    from rich.table import Table

    table = Table(caption="one row for each window; what was left out came before it", caption_justify="left")
    table.add_column("window", justify="right")
    table.add_column("arm", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    arms = dict(zip("AB", record["config"]["arms"], strict=True))
    for number, window in enumerate(record["windows"], 1):
        figures = (_figure(window[name], digits) for name, digits in COLUMNS.values())
        table.add_row(str(number), arms[window["arm"]], *figures, end_section=number % 4 == 0)
    return table


def _comparison(record: Mapping[str, Any]) -> Table:
    from rich.table import Table

    baseline, candidate = record["config"]["arms"]
    caption = f"medians over windows, and {candidate} over {baseline} by blocks (bootstrap intervals of 95%)"
    table = Table(
        caption=f"{caption}\nverdict by {record['compared']}: {record['why_compared']}", caption_justify="left"
    )
    for heading in ("figure", baseline, candidate, "ratio", "from", "to"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for name, ratio in record["bootstrap_ratios"].items():
        medians = (_figure(record["medians"][arm][name], 2) for arm in "AB")
        table.add_row(name, *medians, *(_figure(ratio and ratio[key], 3) for key in ("estimate", "low", "high")))
    return table


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
