"""A stand-in for the Messages API."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from claude_plans import PLANS
from fake_api import FakeApi, Handler, pieces
from steps import Fault, Step, Turn, choose


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


class ClaudeApi(FakeApi[Request]):
    """The server."""

    def choose(self, body: dict[str, Any], size: int) -> tuple[Step, dict[str, int]]:
        """Say what to answer and what it costs, and keep the request, which has `size` bytes."""
        messages = body.get("messages") or []
        # Without tools it is a request of the client's own, such as for a title.
        label, step = choose(PLANS, _turns(messages) if body.get("tools") else [])
        system = body.get("system") or ""
        text = system if isinstance(system, str) else "\n".join(_texts(system))
        usage = {
            "input_tokens": 7,
            "cache_creation_input_tokens": size // 8,
            "cache_read_input_tokens": size // 8,
            "output_tokens": len(json.dumps(step.blocks)) // 4,
        }
        request = Request(label, body.get("model", ""), text, messages, usage)
        return self.keep(request, step), usage


def _turns(messages: list[dict[str, Any]]) -> list[Turn]:
    return [
        Turn(
            message["role"] == "assistant",
            [part["text"] for part in _parts(message["content"]) if part["type"] == "text"],
        )
        for message in messages
    ]


class _Handler(Handler):
    api: ClaudeApi

    def post(self, route: str, raw: bytes) -> None:
        if route == "/v1/messages/count_tokens":
            self._answered(200, {"input_tokens": len(raw) // 4})
        elif route == "/v1/messages":
            self._message(json.loads(raw), len(raw))
        else:
            self.refuse(404, "not_found_error")

    def _message(self, body: dict[str, Any], size: int) -> None:
        step, usage = self.api.choose(body, size)
        fault = step.fault
        if fault is not None and fault.kind == "refuse":
            self.refuse(fault.status, fault.error)
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
            self.hang_up()
        elif fault is not None and fault.kind == "stall":
            self.api.stall()
        else:
            self._answered(200, message)

    def _finished(self, block: dict[str, Any]) -> dict[str, Any]:
        if block["type"] == "tool_use":
            return {"type": "tool_use", "id": f"toolu_{self.api.number():06}", **block}
        if block["type"] == "thinking":
            return {**block, "signature": "c2lnbmVk"}
        return block

    def _stream(self, message: dict[str, Any], fault: Fault | None, pause: float) -> None:
        self.begin_stream()
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
        self.end_stream()

    def _fail(self, fault: Fault) -> None:
        if fault.kind == "stall":
            self.api.stall()
        if fault.kind == "event":
            error = {"type": fault.error, "message": "the stream fails here"}
            self._event("error", error=error)
            self.end_stream()
            return
        time.sleep(0.2)  # what was sent so far should arrive first
        self.hang_up()

    def _event(self, kind: str, **fields: Any) -> None:
        self.send_event(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}")

    def refuse(self, status: int, error: str) -> None:
        document = {"type": "error", "error": {"type": error, "message": f"refused: {error}"}}
        self._answered(status, document)

    def _answered(self, status: int, document: dict[str, Any]) -> None:
        request = f"req_{self.api.number():06}"
        self.answer(status, document, request_id=request, retry_after="0")


def _split(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return how a block begins, and its deltas."""
    if block["type"] == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        return {"type": "text", "text": ""}, deltas
    if block["type"] == "thinking":
        thoughts = pieces(block["thinking"])
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in thoughts]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    inputs = pieces(json.dumps(block["input"]))
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in inputs]
    return {**block, "input": {}}, deltas


ClaudeApi.handler = _Handler
