"""An HTTP server that messages are posted to, and that does not always behave."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = "/hooks/T0PS3CRET?token=hush"


class Receiver:
    """An HTTP server whose answers are given: a status each, the last one for ever. None: it never answers."""

    def __init__(self, *statuses: int | None) -> None:
        self.messages: list[tuple[str, dict[str, object]]] = []
        self.statuses = list(statuses)
        self.go = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.headers["Content-Type"] == "application/json"
                receiver.messages.append((self.path, body))
                status = receiver.statuses.pop(0) if len(receiver.statuses) > 1 else receiver.statuses[0]
                if status is None:
                    receiver.go.wait(60)
                    return
                self.send_response(status)
                if status in (301, 302, 307, 308):
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://user:pass@127.0.0.1:{self.server.server_port}{SECRET}"


@contextmanager
def receiving(*statuses: int | None) -> Iterator[Receiver]:
    receiver = Receiver(*statuses)
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.go.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()
