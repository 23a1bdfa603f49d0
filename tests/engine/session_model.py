"""What must be true of one agent, kept beside it by a test and computed from nothing of ours.

`Model` knows what the caller got and what docs/behaviour.md says that follows. `Seen` is
what the log says, read line by line with Python's own json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

ENDS = {"turn.complete": "completed", "turn.error": "failed"}
TRANSITIONS = {
    "created": {"active", "terminated"},
    "active": {"suspended", "terminated"},
    "suspended": {"active", "terminated"},
    "terminated": set[str](),
}


@dataclass
class Message:
    """One message: its text, how often a turn took it, how its turn ended, and what was settled."""

    text: str
    starts: int = 0
    ended: str | None = None
    delivered: list[str] = field(default_factory=list)


@dataclass
class Session:
    """A state, and messages in order by id; what a log says, or what it ought to say."""

    state: str = "created"
    messages: dict[str, Message] = field(default_factory=dict)
    turns: dict[str, str] = field(default_factory=dict)
    ends: int = 0
    blocks: int = 0

    def take(self, record: dict[str, Any]) -> None:
        """Take one more record."""
        data, event = record["data"], record["event"]
        if event == "session.state":
            assert data["from"] == self.state
            assert data["to"] in TRANSITIONS[self.state]
            self.state = data["to"]
        elif event == "message.enqueued":
            assert data["message_id"] not in self.messages
            self.messages[data["message_id"]] = Message(data["content"][0]["text"])
        elif event == "turn.start":
            (message,) = data["message_ids"]
            self.turns[data["turn_id"]] = message
            self.messages[message].starts += 1
        elif event in ENDS or event == "turn.aborted":
            aborted = "failed" if data.get("reason") == "crash" else "aborted"
            message = self.messages[self.turns[data["turn_id"]]]
            assert message.ended is None
            message.ended = ENDS.get(event, aborted)
            self.ends += 1
        elif event == "message.delivered":
            message = self.messages[data["message_id"]]
            if not message.starts:
                assert self.state == "terminated"
                message.ended = "aborted"
            assert data["outcome"] == message.ended
            message.delivered.append(data["outcome"])
        elif event == "block":
            self.blocks += 1

    @property
    def queued(self) -> list[Message]:
        """The messages that wait."""
        return [m for m in self.messages.values() if not (m.starts or m.delivered)]

    @property
    def open(self) -> list[Message]:
        """The messages that a turn has taken and that are not settled; one at most."""
        return [m for m in self.messages.values() if m.starts and not m.delivered]

    @property
    def told(self) -> list[tuple[str, int, list[str]]]:
        """Text, turns and outcomes of every message, in order."""
        return [(m.text, m.starts, m.delivered) for m in self.messages.values()]

    # What docs/behaviour.md says that a verb does; the other half of the comparison.

    def close(self) -> None:
        """End a turn that a dead process left open."""
        for message in self.open:
            message.ended = message.ended or "failed"
            message.delivered.append(message.ended)

    def end(self) -> None:
        """Close the session for good, and all that waits with it."""
        for message in self.queued:
            message.ended = "aborted"
            message.delivered.append("aborted")
        self.state = "terminated"

    def go(self, state: str) -> bool:
        """Make a transition; tell whether there is such a one."""
        if state not in TRANSITIONS[self.state]:
            return False
        self.state = state
        return True

    def run(self, message: Message, outcome: str) -> None:
        """Run one message to its end."""
        message.starts += 1
        message.ended = outcome
        message.delivered.append(outcome)


def read_records(log: bytes) -> list[dict[str, Any]]:
    """Return every record that stands whole on a line of its own, its LF excepted."""
    found = []
    for line in log.split(b"\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def seen(log: bytes) -> Session:
    """Return what a log says."""
    session = Session()
    for record in read_records(log):
        session.take(record)
    return session
