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
    r"Got it\. Thanks for the additional context!$": "its answer to its own summary",
}
CHOSEN = (
    "agent", "chat", "clear", "compress", "confirm", "esc_early", "esc_text", "hint", "plain",
    "plan", "queue_edit", "queue_esc", "queue_tools", "restore", "rewind", "rewind_first",
    "rewind_mid", "unicode",
)  # fmt: skip
# What is typed behind one of these is a command, or the context, to a client that reads its file
# again: it is not sent.
UNSENT = ("/", "?", "<session_context>")
# A history that was written anew has the first prompt in one message with the context, which a
# resumed client replaces as a whole: to the model, this prompt is lost.
LOST_FIRST = ("chat", "confirm", "restore")
# A checkpoint is made before its call runs, so that the call is sent without its result.
WITHOUT_RESULT = {
    "restore": ["not sent: Item(kind='result', said='write_file_1795917869068_0')"],
}
OPEN: dict[str, str] = {}


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
    told: list[str] = []
    scenario = recording.name.removeprefix("tty_")
    for row in desk.ok("list", "--native").rows:
        parsed = desk("parse", "--view", "all", row["file"]).rows
        blocks = [b for b in parsed if not str(b.get("content")).startswith(UNSENT)]
        if scenario in LOST_FIRST:
            live = (b for b in blocks if b["type"] == "user_message" and not b.get("superseded"))
            blocks.remove(next(live))
        desk.by_hand(row["id"], PROMPT)
        sent = list(_history(desk.api.of("again")[-1].contents))
        told += differences(blocks, sent, OWN)
    assert told == WITHOUT_RESULT.get(scenario, [])
