"""A stand-in for the Gemini API."""

from __future__ import annotations

import json
import re
import time
from typing import Any, NamedTuple

from fake_api import FakeApi, Handler, pieces
from gemini_plans import PLANS
from steps import Step, Turn, choose, say


class Request(NamedTuple):
    """One call of the model: which step it got, what it was sent, and what it was charged."""

    step: str
    model: str
    system: str
    contents: list[dict[str, Any]]
    usage: dict[str, int]

    @property
    def parts(self) -> list[dict[str, Any]]:
        """Every part of the contents, in order."""
        return [part for content in self.contents for part in content.get("parts") or []]

    @property
    def texts(self) -> list[str]:
        """Every text, tool input and tool result of the contents, in order.

        Without the context that the client sets before the first prompt.
        """
        found = [_text(part) for part in self.parts]
        return [text for text in found if text and not text.startswith("<session_context>")]

    @property
    def pairs(self) -> list[tuple[str, bool]]:
        """The ids of tool calls and of their results, each with whether it is a result."""
        return [
            (part[kind]["id"], kind == "functionResponse")
            for part in self.parts
            for kind in ("functionCall", "functionResponse")
            if kind in part
        ]


def _text(part: dict[str, Any]) -> str:
    if "functionCall" in part:
        return json.dumps(part["functionCall"]["args"])
    if "functionResponse" in part:
        return json.dumps(part["functionResponse"]["response"])
    return str(part.get("text") or "")


class GeminiApi(FakeApi[Request]):
    """The server."""

    def choose(self, model: str, body: dict[str, Any], size: int) -> tuple[Step, dict[str, int]]:
        """Say what to answer and what it costs, and keep the request, which has `size` bytes."""
        contents = body.get("contents") or []
        turns = [
            Turn(
                content.get("role") == "model",
                [part["text"] for part in content.get("parts") or [] if "text" in part],
            )
            for content in contents
        ]
        # Without tools it is a request of the client's own, such as for a title or a model.
        label, step = choose(PLANS, turns if body.get("tools") else [])
        wanted = body.get("generationConfig") or {}
        if wanted.get("responseMimeType") == "application/json":
            schema = wanted.get("responseJsonSchema") or wanted.get("responseSchema")
            step = Step((say(json.dumps(_example(schema or {}))),))
        said = sum(len(json.dumps(b)) for b in step.blocks if b["type"] != "thinking")
        thought = sum(len(b["thinking"]) for b in step.blocks if b["type"] == "thinking")
        usage = {
            "promptTokenCount": size // 4,
            "cachedContentTokenCount": size // 8,
            "candidatesTokenCount": said // 4 + 1,
            "thoughtsTokenCount": thought // 4,
        }
        usage["totalTokenCount"] = sum(usage.values()) - usage["cachedContentTokenCount"]
        system = "\n".join(
            part.get("text", "") for part in (body.get("systemInstruction") or {}).get("parts", [])
        )
        return self.keep(Request(label, model, system, contents, usage), step), usage


def _example(schema: dict[str, Any]) -> Any:
    """Return the plainest document that a schema lets pass."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type", "string")).lower()
    if kind == "object":
        return {name: _example(one) for name, one in (schema.get("properties") or {}).items()}
    number = schema.get("minimum", 0)
    plain = {"array": [], "boolean": False, "number": number, "integer": number}
    return plain.get(kind, "fake")


class _Handler(Handler):
    api: GeminiApi

    def post(self, route: str, raw: bytes) -> None:
        called = re.fullmatch(r"/v1(?:beta)?/models/([^:]+):(\w+)", route)
        model, verb = called.groups() if called else ("", "")
        if verb == "countTokens":
            self.answer(200, {"totalTokens": len(raw) // 4})
        elif verb in ("generateContent", "streamGenerateContent"):
            self._generate(model, raw, stream=verb != "generateContent")
        else:
            self.refuse(404, "NOT_FOUND")

    def refuse(self, status: int, error: str) -> None:
        told = {"code": status, "message": f"refused: {error}", "status": error}
        self.answer(status, {"error": told})

    def _generate(self, model: str, raw: bytes, *, stream: bool) -> None:
        step, usage = self.api.choose(model, json.loads(raw), len(raw))
        fault = step.fault
        if fault is not None and fault.kind == "refuse":
            self.refuse(fault.status, fault.error)
            return
        rest = {
            "usageMetadata": usage,
            "modelVersion": model,
            "responseId": f"response_{self.api.number():06}",
        }
        parts = [part for block in step.blocks for part in _parts(block)]
        if not stream:
            self.answer(200, {"candidates": [_candidate(parts, step.stop or "STOP")], **rest})
            return
        self.begin_stream()
        for number, part in enumerate(parts):
            if fault is not None and number == fault.after:
                if fault.kind == "stall":
                    self.api.stall()
                time.sleep(0.2)  # what was sent so far should arrive first
                self.hang_up()
                return
            self._event({"candidates": [_candidate([part])], **rest})
            time.sleep(step.pause)
        self._event({"candidates": [_candidate([], step.stop or "STOP")], **rest})
        self.end_stream()

    def _event(self, document: dict[str, Any]) -> None:
        self.send_event(f"data: {json.dumps(document)}")


def _candidate(parts: list[dict[str, Any]], finish: str = "") -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {**candidate, "finishReason": finish} if finish else candidate


def _parts(block: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts in which a block is sent."""
    if block["type"] == "thinking":
        return [{"text": block["thinking"], "thought": True}]
    if block["type"] == "text":
        return [{"text": piece} for piece in pieces(block["text"])]
    call = {"name": block["name"], "args": block["input"]}
    return [{"functionCall": call, "thoughtSignature": "c2lnbmVk"}]


GeminiApi.handler = _Handler
