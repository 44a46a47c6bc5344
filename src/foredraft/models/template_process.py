"""The parent's end of template_worker.py: asks it, and says why it failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foredraft.errors import TemplateError, UnavailableError
from foredraft.worker import NoWorkerError, Worker, WorkerError

_SCRIPT = Path(__file__).with_name("template_worker.py")


class TemplateProcess:
    """Renders one template in a process of its own, which starts with the first rendering and ends with this object.

    Safe to share between threads; renderings take turns.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._worker = Worker(_SCRIPT)

    def render(self, variables: Mapping[str, Any]) -> str:
        """The template's text.

        Raises:
            TemplateError: the template is broken, refuses the variables, or needs too much time, memory or text; or
                the variables are not JSON.
            UnavailableError: no process can be started.
        """
        try:
            request = json.dumps({"source": self._source, "variables": variables}).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as exc:
            raise TemplateError(f"messages and tools have to be plain JSON values ({exc})") from exc
        try:
            reply = json.loads(self._worker.ask(request))
        except NoWorkerError as exc:
            raise UnavailableError(f"the chat template cannot be applied now: {exc}; try again later") from exc
        except WorkerError as exc:
            cause = "runs too long" if exc.is_too_long else f"ended its process ({exc})"
            raise TemplateError(f"the model's chat template {cause}; use generate, or another model file") from exc
        if "error" in reply:
            raise TemplateError(f"the model's chat template cannot be applied: {reply['error']}")
        text: str = reply["text"]
        return text
