"""Op sets by name."""

from __future__ import annotations

from foredraft.errors import ConfigError
from foredraft.ops.base import Ops

OPS = ("native", "reference")


def create(name: str, threads: int | None = None) -> Ops:
    """The op set called `name`; `threads` (native only) None means the cores really available.

    Raises:
        ConfigError: the name or the thread count is not allowed.
    """
    if threads is not None and not 1 <= threads <= 256:
        raise ConfigError(f"threads is {threads}; allowed is 1 to 256")
    if name == "native":
        from foredraft.ops.native import NativeOps

        return NativeOps(threads)
    if name == "reference":
        from foredraft.ops.reference import ReferenceOps

        return ReferenceOps()
    raise ConfigError(f"unknown op set {name!r}; known are {', '.join(OPS)}")
