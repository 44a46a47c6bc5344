"""The option `--trace`: a trace of the governor's decisions while a command runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from foredraft.engine.llm import LLM
    from foredraft.governor.trace import TraceConfig

trace_option = click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write what the governor decides into a file, for `foredraft replay`.",
)


@contextmanager
def traced(llm: LLM, config: TraceConfig, options: Mapping[str, Any]) -> Iterator[None]:
    """Write a trace while the context runs, if the configuration has a file for it. The options are noted in it.

    Raises:
        TraceError: the file cannot be written.
    """
    if config.file is None:
        yield
        return
    from foredraft.engine.tracing import record_into
    from foredraft.governor.trace import TraceWriter
    from foredraft.provenance import provenance

    with TraceWriter(config.file, {"provenance": provenance(llm.files, options)}, config.max_mib) as writer:
        record_into(llm, writer)
        yield
