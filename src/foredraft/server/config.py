"""What a server is told at start: where it listens, whom it lets in, and how much it takes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from foredraft.core import Speculation
from foredraft.errors import ConfigError


@dataclass(frozen=True)
class ServerConfig:
    """Settings of one server. Validated when made.

    model_name: what clients call the model; None takes the name it was loaded by. api_keys: one of them has to come
    with every request; none means that everybody who reaches the address is let in. max_queue: sequences that may wait
    beside those that run. deadline_s: seconds that a request may take in all, waiting and reading the answer included.
    max_tokens: the most that a request may ask for; None means what the context holds. max_body_bytes: of a request.
    grace_s: seconds that running requests have to finish once the server is told to stop. speculation: what a request
    gets that does not say.

    Raises:
        ConfigError: a value is outside its range.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model_name: str | None = None
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    max_queue: int = 64
    deadline_s: float = 600.0
    max_tokens: int | None = None
    max_body_bytes: int = 2 << 20
    grace_s: float = 10.0
    speculation: Speculation = Speculation()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        for name, least, most in (
            ("port", 0, 65535),
            ("max_queue", 0, 100_000),
            ("deadline_s", 0.1, 86_400),
            ("max_tokens", 1, 1 << 31),
            ("max_body_bytes", 1024, 1 << 30),
            ("grace_s", 0, 3600),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{name} is {value}; allowed is {least} to {most}")
