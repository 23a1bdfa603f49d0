"""Blocks as a page for people."""

from __future__ import annotations

from typing import Any

import orjson

INDENT = "    "
LONG = 2000


def render_event(event: dict[str, Any]) -> str:
    """Return what a replayed event says to a person: a block, or how a turn failed."""
    if event["type"] == "block_complete":
        return render(event["block"])
    metadata = event.get("metadata", {})
    if "error" in metadata:
        return f"-- the turn failed: {metadata['error']['message']}\n\n"
    if "aborted" in metadata:
        return f"-- the turn was aborted: {metadata['aborted']}\n\n"
    return ""


def render(block: dict[str, Any]) -> str:
    """Return one block as a paragraph, or nothing for a block that people need not see."""
    if not isinstance(block.get("type"), str):
        return ""
    if block.get("hidden") or block.get("superseded"):
        return ""
    writer = _WRITERS.get(block["type"])
    try:
        text = writer(block) if writer else ""
    except (KeyError, TypeError):
        text = f"-- a {block['type']} block that lacks its parts"
    thread = block["conversationId"]
    mark = "" if thread == "main" else f"[{thread}] "
    return f"{mark}{text}\n\n" if text else ""


def _user(block: dict[str, Any]) -> str:
    return "> " + _plain(block["content"]).replace("\n", "\n> ")


def _text(block: dict[str, Any]) -> str:
    return str(block["content"])


def _thinking(block: dict[str, Any]) -> str:
    said = block.get("summary") or block["content"]
    return f"(thinking) {_cut(str(said))}" if said else ""


def _tool(block: dict[str, Any]) -> str:
    arguments = _cut(orjson.dumps(block["input"]).decode())
    return f"* {block['toolName']} {arguments} [{block['status']}]"


def _result(block: dict[str, Any]) -> str:
    kind = "error" if block["isError"] else "result"
    text = _cut(_plain(block["output"])).replace("\n", "\n" + INDENT)
    return f"{INDENT}{kind}: {text}"


def _system(block: dict[str, Any]) -> str:
    return f"-- {block['message']}" if block["message"] else ""


def _subagent(block: dict[str, Any]) -> str:
    name = block.get("name") or block.get("subagentId") or "subagent"
    return f"* subagent {name} [{block['status']}]"


_WRITERS = {
    "user_message": _user,
    "assistant_text": _text,
    "thinking": _thinking,
    "tool_use": _tool,
    "tool_result": _result,
    "system": _system,
    "subagent": _subagent,
}


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            str(part.get("text", f"[{part.get('type')}]")) if isinstance(part, dict) else str(part)
            for part in content
        )
    return orjson.dumps(content).decode()


def _cut(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}… ({len(text)} characters)"
