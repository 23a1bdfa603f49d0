"""A full-screen session that is resumed: what the client sends is what is live."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from claude_desk import ClaudeDesk as Desk
from resumed import PROMPT, Item, copy_home, differences, scenarios

OWN = {
    r"<system-reminder>|\[client text|You are powered by|SessionStart": "context, in front of all",
    r"# Environment": "the environment, where it is another than that of the last run",
    r"<local-command-|<command-name>|<command-message>|<bash-(input|stdout)>": (
        "what commands were and printed, in the client's mark-up: system blocks"
    ),
    r"\[Request interrupted by user": "a system block",
    r"<task-notification>": "a system block",
    r"This session is being continued": "the wrapping of a summary",
    r"Stop hook feedback|UserPromptSubmit hook|PostToolUse:": "what hooks said: system blocks",
    r"(Greet the|Files:|Base directory for)": "what custom commands expand to",
    r"No response requested\.": "an answer for a session that ends with a command",
}
CLIENTS = [Path(one) for one in os.environ.get("AGENTSDIR_TEST_CLAUDE", "").split(":") if one]
CHOSEN = (
    "agent_fg", "allow_note", "branch", "compact", "custom_command", "deny", "esc_early",
    "esc_text", "queue_commands", "queue_edit", "queue_esc", "queue_tools", "rewind",
    "rewind_code", "rewind_leave",
)  # fmt: skip
# The client lost it from its chain, and goes on with its answer, which would say nothing alone.
UNSENT = {"tty_queue_esc": "Rather this"}
OPEN: dict[str, str] = {}


def _history(messages: list[dict[str, Any]]) -> Iterator[Item]:
    for message in messages:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part["type"] == "text":
                yield Item("text", part["text"])
            elif part["type"] == "tool_use":
                yield Item("call", part["id"])
            elif part["type"] == "tool_result":
                yield Item("result", part["tool_use_id"])
                # Words typed while the tool ran are sent with its result.
                yield Item("beside", str(part.get("content")).replace("\\n", "\n"))


def _goes_on_with_what_is_live(recording: Path, make: Callable[..., Desk]) -> None:
    client = next(one for one in CLIENTS if f"/{recording.parent.name}/" in str(one))
    desk = make(client=client)
    copy_home(recording, desk.home)
    (project,) = (desk.store / "projects").iterdir()
    project = project.rename(
        project.with_name(re.sub("[^a-zA-Z0-9]", "-", str(desk.work.resolve())))
    )
    rows = desk.ok("parse", "--view", "all", str(project)).rows
    for main in sorted(project.glob("*.jsonl")):
        blocks = [row for row in rows if row["source"]["file"].endswith(main.name)]
        desk.by_hand(main.stem, PROMPT)
        sent = list(_history(desk.api.of("again")[-1].messages))
        unsent = UNSENT.get(recording.name, PROMPT)
        assert [one for one in differences(blocks, sent, OWN) if unsent not in one] == []


@scenarios("claude-2.1.332", *CHOSEN, open_faults=OPEN)
def test_a_new_client_goes_on_with_what_is_live(
    recording: Path, desk_of: Callable[..., Desk]
) -> None:
    """No prompt, answer, call or result less, none that was left, and all in the same order."""
    _goes_on_with_what_is_live(recording, desk_of)


@scenarios("claude-2.1.98", *CHOSEN, open_faults=OPEN)
def test_an_older_client_goes_on_with_what_is_live(
    recording: Path, desk_of: Callable[..., Desk]
) -> None:
    """The same of a client that writes fewer kinds of rows."""
    _goes_on_with_what_is_live(recording, desk_of)
