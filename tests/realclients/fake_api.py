"""A stand-in for a model's API on loopback: it answers by plan, and keeps what it was sent.

It holds no conversation. What to answer follows from the request alone (`steps.choose`). So
retries, resumptions, forks and several clients at once all get what they should, and what a client
remembers shows in what it sends.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from steps import Step

PIECE = 12
"""Characters of one delta."""


class Asked(Protocol):
    """One call of the model: `step` is the label of what it got."""

    @property
    def step(self) -> str:
        """Return the label."""


R = TypeVar("R", bound=Asked)


class FakeApi(Generic[R]):
    """The server, in a thread of its own; a context manager."""

    handler: ClassVar[type[Handler]]

    def __init__(self) -> None:
        self.requests: list[R] = []
        self._hits: Counter[str] = Counter()
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        handler = type("Bound", (self.handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """What a client takes for the API's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def number(self) -> int:
        """Return a number for an id."""
        with self._lock:
            return next(self._numbers)

    def of(self, plan: str) -> list[R]:
        """Return the requests that got a step of this plan."""
        return [one for one in self.requests if one.step.startswith(f"{plan}:")]

    def keep(self, request: R, step: Step) -> Step:
        """Record a request, and return its step, without the fault where that is over."""
        with self._lock:
            self._hits[request.step] += 1
            hit = self._hits[request.step]
            self.requests.append(request)
        if step.fault is not None and hit > step.fault.times:
            return step._replace(fault=None)
        return step

    def stall(self) -> None:
        """Wait until the server is closed."""
        self._closing.wait()


class Handler(ABC, BaseHTTPRequestHandler):
    """What every API's server does with a connection."""

    protocol_version = "HTTP/1.1"
    api: FakeApi[Any]

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def handle(self) -> None:
        """Serve until the client is done, or gone: many of these clients are killed."""
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def do_GET(self) -> None:
        """Answer that there is nothing."""
        self.refuse(404, "")

    do_HEAD = do_GET  # noqa: N815, the base class calls it so

    def do_POST(self) -> None:
        """Answer a call."""
        size = int(self.headers.get("content-length") or 0)
        self.post(self.path.partition("?")[0], self.rfile.read(size))

    @abstractmethod
    def post(self, route: str, raw: bytes) -> None:
        """Answer a call at a route, which posted these bytes."""

    @abstractmethod
    def refuse(self, status: int, error: str) -> None:
        """Answer with an error as the API spells it."""

    def answer(self, status: int, document: dict[str, Any], **headers: str) -> None:
        """Send a JSON document."""
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def begin_stream(self) -> None:
        """Begin a stream of events."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send_event(self, lines: str) -> None:
        """Send one event."""
        data = f"{lines}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end_stream(self) -> None:
        """End the stream as it should."""
        self.wfile.write(b"0\r\n\r\n")

    def hang_up(self) -> None:
        """Close the connection in the middle of whatever it was."""
        self.close_connection = True
        self.connection.close()


def pieces(text: str) -> list[str]:
    """Return a text as the deltas in which it is sent."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
