"""A full-screen session that is resumed: what the client sends is what is live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from gemini_desk import GeminiDesk as Desk
from resumed import PROMPT, Item, copy_home, differences, own_id, scenarios

OWN = {
    r"<session_context>": "context, in front of all",
}
CHOSEN = (
    "agent", "chat", "clear", "compress", "confirm", "esc_early", "esc_text", "hint", "plain",
    "plan", "queue_edit", "queue_esc", "queue_tools", "restore", "rewind", "rewind_first",
    "rewind_mid", "unicode",
)  # fmt: skip
# What is typed behind one of these is a command to the client when it reads its file again.
UNSENT = ("/", "?")
OPEN = {
    "chat": "a history that is written anew stands twice",
    "confirm": "a history that is written anew stands twice",
    "restore": "a history that is written anew stands twice",
    "hint": "steering is hidden",
    "unicode": "typed text that begins as a client's tag is hidden",
}


def _history(contents: list[dict[str, Any]]) -> Iterator[Item]:
    for content in contents:
        for part in content.get("parts") or []:
            if "functionCall" in part:
                yield Item("call", own_id(part["functionCall"]["id"]))
            elif "functionResponse" in part:
                yield Item("result", own_id(part["functionResponse"]["id"]))
            elif part.get("text"):
                yield Item("text", part["text"])


@scenarios("gemini-0.61.0", *CHOSEN, open_faults=OPEN)
def test_a_client_goes_on_with_what_is_live(recording: Path, desk: Desk) -> None:
    """No prompt, answer, call or result less, none that was left, and all in the same order."""
    copy_home(recording, desk.home)
    desk.settle()
    for place in ("tmp", "history"):
        (desk.store / place / "ws" / ".project_root").write_text(str(desk.work))
    projects = {"projects": {str(desk.work): "ws"}}
    (desk.store / "projects.json").write_bytes(orjson.dumps(projects))
    told = {}
    for row in desk.ok("list", "--native").rows:
        parsed = desk("parse", "--view", "all", row["file"]).rows
        blocks = [b for b in parsed if not str(b.get("content")).startswith(UNSENT)]
        desk.by_hand(row["id"], PROMPT)
        sent = list(_history(desk.api.of("again")[-1].contents))
        told[row["id"]] = differences(blocks, sent, OWN)
    assert not any(told.values()), told
