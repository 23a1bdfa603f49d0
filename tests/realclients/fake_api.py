"""A stand-in for the Messages API on loopback: it answers by plan, and keeps what it was sent.

It holds no conversation. What to answer follows from the request alone: the newest prompt that
names a plan, and how many answers came after it. So retries, resumptions, forks and several clients
at once all get what they should, and what a client remembers shows in what it sends.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, NamedTuple

from plans import PLANS, Fault, Step

_MARK = re.compile(r"\[\[([a-z-]+)((?: \w+=[^\s\]]+)*)\]\]")
_DELTA = 12  # characters


class Request(NamedTuple):
    """One call of the model: which step it got, what it was sent, and what it was charged."""

    step: str
    model: str
    system: str
    messages: list[dict[str, Any]]
    usage: dict[str, int]

    @property
    def texts(self) -> list[str]:
        """Every text, tool input and tool result of the messages, in order."""
        return [text for message in self.messages for text in _texts(message["content"])]

    @property
    def shape(self) -> list[str]:
        """Role and block types of each message: what a resumption is compared by."""
        return [
            f"{message['role']}:{'+'.join(part['type'] for part in _parts(message['content']))}"
            for message in self.messages
        ]


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _texts(content: Any) -> list[str]:
    found = []
    for part in _parts(content):
        for name in ("text", "thinking", "content", "input"):
            value = part.get(name)
            if value:
                found.append(value if isinstance(value, str) else json.dumps(value))
    return found


class FakeApi:
    """The server, in a thread of its own; a context manager."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._hits: Counter[str] = Counter()
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        api = self

        class Handler(_Handler):
            pass

        Handler.api = api
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """What a client takes for the API's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeApi:
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

    def of(self, plan: str) -> list[Request]:
        """Return the requests that got a step of this plan."""
        return [one for one in self.requests if one.step.startswith(f"{plan}:")]

    def choose(self, body: dict[str, Any], size: int) -> tuple[Step, dict[str, int]]:
        """Say what to answer and what it costs, and keep the request, which has `size` bytes."""
        messages = body.get("messages") or []
        name, at, step = _choose(messages, with_tools=bool(body.get("tools")))
        label = f"{name}:{at}"
        with self._lock:
            self._hits[label] += 1
            hit = self._hits[label]
            system = body.get("system") or ""
            text = system if isinstance(system, str) else "\n".join(_texts(system))
            usage = {
                "input_tokens": 7,
                "cache_creation_input_tokens": size // 8,
                "cache_read_input_tokens": size // 8,
                "output_tokens": len(json.dumps(step.blocks)) // 4,
            }
            self.requests.append(Request(label, body.get("model", ""), text, messages, usage))
        if step.fault is not None and hit > step.fault.times:
            return step._replace(fault=None), usage
        return step, usage

    def stall(self) -> None:
        """Wait until the server is closed."""
        self._closing.wait()


def _choose(messages: list[dict[str, Any]], *, with_tools: bool) -> tuple[str, int, Step]:
    if with_tools:
        for index in range(len(messages) - 1, -1, -1):
            if messages[index]["role"] != "user":
                continue
            marks = [
                mark
                for part in _parts(messages[index]["content"])
                if part["type"] == "text"
                for mark in _MARK.finditer(part["text"])
            ]
            if marks:
                name, given = marks[-1][1], dict(re.findall(r"(\w+)=([^\s\]]+)", marks[-1][2]))
                at = sum(message["role"] == "assistant" for message in messages[index + 1 :])
                plan = PLANS.get(name, [])
                if at < len(plan):
                    blocks = tuple(_filled(block, given) for block in plan[at].blocks)
                    return name, at, plan[at]._replace(blocks=blocks)
                return name, at, Step(({"type": "text", "text": f"{name} is over."},))
    return "aside", 0, Step(({"type": "text", "text": "Fine."},))


def _filled(value: Any, given: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, word in given.items():
            value = value.replace("{" + name + "}", word)
        return value
    if isinstance(value, dict):
        return {name: _filled(item, given) for name, item in value.items()}
    return value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: FakeApi

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def handle(self) -> None:
        """Serve until the client is done, or gone: many of these clients are killed."""
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def do_GET(self) -> None:
        self._refuse(404, "not_found_error")

    do_HEAD = do_GET  # noqa: N815, the base class calls it so

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        route = self.path.partition("?")[0]
        if route == "/v1/messages/count_tokens":
            self._answer(200, {"input_tokens": len(raw) // 4})
        elif route == "/v1/messages":
            self._message(json.loads(raw), len(raw))
        else:
            self._refuse(404, "not_found_error")

    def _message(self, body: dict[str, Any], size: int) -> None:
        step, usage = self.api.choose(body, size)
        fault = step.fault
        if fault is not None and fault.kind == "refuse":
            self._refuse(fault.status, fault.error)
            return
        blocks = [self._finished(block) for block in step.blocks]
        calls = any(block["type"] == "tool_use" for block in blocks)
        message = {
            "id": f"msg_{self.api.number():06}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": blocks,
            "stop_reason": step.stop or ("tool_use" if calls else "end_turn"),
            "stop_sequence": None,
            "usage": {**usage, "service_tier": "standard"},
        }
        if body.get("stream"):
            self._stream(message, fault, step.pause)
        elif fault is not None and fault.kind == "cut":
            self._hang_up()
        elif fault is not None and fault.kind == "stall":
            self.api.stall()
        else:
            self._answer(200, message)

    def _finished(self, block: dict[str, Any]) -> dict[str, Any]:
        if block["type"] == "tool_use":
            return {"type": "tool_use", "id": f"toolu_{self.api.number():06}", **block}
        if block["type"] == "thinking":
            return {**block, "signature": "c2lnbmVk"}
        return block

    def _stream(self, message: dict[str, Any], fault: Fault | None, pause: float) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        usage = message["usage"]
        begun = {**message, "content": [], "stop_reason": None}
        begun["usage"] = {**usage, "output_tokens": 1}
        self._event("message_start", message=begun)
        sent = 0
        for index, block in enumerate(message["content"]):
            start, deltas = _split(block)
            self._event("content_block_start", index=index, content_block=start)
            for delta in deltas:
                if fault is not None and sent == fault.after:
                    self._fail(fault)
                    return
                self._event("content_block_delta", index=index, delta=delta)
                sent += 1
                time.sleep(pause)
            self._event("content_block_stop", index=index)
        ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        self._event("message_delta", delta=ended, usage=usage)
        self._event("message_stop")
        self.wfile.write(b"0\r\n\r\n")

    def _fail(self, fault: Fault) -> None:
        if fault.kind == "stall":
            self.api.stall()
        if fault.kind == "event":
            error = {"type": fault.error, "message": "the stream fails here"}
            self._event("error", error=error)
            self.wfile.write(b"0\r\n\r\n")
            return
        time.sleep(0.2)  # what was sent so far should arrive first
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _event(self, kind: str, **fields: Any) -> None:
        data = f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _refuse(self, status: int, error: str) -> None:
        document = {"type": "error", "error": {"type": error, "message": f"refused: {error}"}}
        self._answer(status, document)

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("request-id", f"req_{self.api.number():06}")
        self.send_header("retry-after", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _split(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return how a block begins, and its deltas."""
    if block["type"] == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        return {"type": "text", "text": ""}, deltas
    if block["type"] == "thinking":
        thoughts = _pieces(block["thinking"])
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in thoughts]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    pieces = _pieces(json.dumps(block["input"]))
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return {**block, "input": {}}, deltas


def _pieces(text: str) -> list[str]:
    return [text[at : at + _DELTA] for at in range(0, len(text), _DELTA)]
