"""The one exception tree.

Every message says what was given, what is allowed and what to do. A `ForedraftError` is a user's to read: the command
line prints it as one sentence and exits with status 2. Anything else that escapes is a bug of ours.
"""


class ForedraftError(Exception):
    """Base of every error that a user of foredraft can cause or has to act on.

    field: the one of a request's fields that is to blame, where there is one; a server's answer names it apart.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ConfigError(ForedraftError):
    """An option or parameter has a value that is not allowed; the message names it and what is allowed."""


class ModelError(ForedraftError):
    """A model file cannot be used: missing, truncated, corrupt, or of a kind that is not supported."""


class DownloadError(ForedraftError):
    """A model could not be fetched from any of its sources; nothing half-written is left under its name."""


class TokenizerError(ForedraftError):
    """A tokenizer cannot be built, or the tokenizers of target and draft differ; the message names the tokens."""


class TemplateError(ForedraftError):
    """A chat template is missing, broken, refused the messages, or exceeded its time or output bound."""


class TraceError(ForedraftError):
    """A trace cannot be written to its file, or a file is not a trace that this version reads."""


class UnavailableError(ForedraftError):
    """This machine or installation lacks what is needed; nothing is wrong with what was asked for."""


class StoreError(UnavailableError):
    """What a server keeps across restarts cannot be read or written; it serves on without."""


class RequestError(ForedraftError):
    """One request cannot be served as given (too long, an unknown token, an empty prompt); others go on."""


class CapacityError(RequestError):
    """A request can never fit into the memory that was budgeted for keys and values at start."""
