"""Shared by the tests of `formats`: a fixed clock, fixed ids, agents on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentsdir.formats.store.agent import create_agent_folder, write_agent
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.log import Record

AGENT = "tz4a98xxat96iws9zmbrgj3a"
SESSION = "5f0c1a7be1b94c0f9a52d3f7e2c48d61"
NATIVE = "5f0c1a7b-e1b9-4c0f-9a52-d3f7e2c48d61"


@dataclass
class Agents:
    """An agents directory in the making: one clock, ids that say what they are."""

    layout: Layout
    ticks: int = 0
    id = AGENT
    session = SESSION
    native = NATIVE

    def now(self) -> str:
        """Return the next second of a fixed day."""
        self.ticks += 1
        return f"2026-01-02T03:{self.ticks // 60:02}:{self.ticks % 60:02}.000000Z"

    def created(self, agent_id: str = AGENT, **changes: Any) -> dict[str, Any]:
        """Return the data of a `session.created` record."""
        return {
            "agent_id": agent_id,
            "descriptor": {
                "type": "user",
                "connector": "cli",
                "userId": "me",
                "channelId": agent_id,
            },
            "provider": "echo",
            "model": "echo-1",
            "system_prompt": "",
            "profile": "",
            "cwd": "/w",
            "permission_mode": None,
            "limits": {},
            "options": {},
            "native": {"architecture": "echo", "id": NATIVE, "cwd": "/w"},
            **changes,
        }

    def publish(self, agent_id: str = AGENT, **changes: Any) -> AgentPaths:
        """Put a new agent on disk."""
        data = self.created(agent_id, **changes)
        return create_agent_folder(self.layout, agent_id, data, self.now(), SESSION)

    def append(self, paths: AgentPaths, event: str, data: dict[str, Any]) -> Record:
        """Append one event, as any writer does."""
        with write_agent(paths) as writer:
            return writer.append(event, data, self.now())

    def talk(self, paths: AgentPaths, turns: int = 1) -> None:
        """Append whole turns: a prompt and its answer."""
        for number in range(1, turns + 1):
            for event, data in turn_events(number):
                self.append(paths, event, data)


def block(kind: str, block_id: str, **fields: Any) -> dict[str, Any]:
    """Return a block of the main conversation."""
    return {
        "type": kind,
        "id": block_id,
        "conversationId": "main",
        "sessionId": NATIVE,
        "timestamp": "2026-01-02T03:04:05.000000Z",
        **fields,
        "source": None,
    }


def turn_events(number: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of one completed turn."""
    turn, message = f"turn{number:020}", f"mess{number:020}"
    usage = {
        "inputTokens": 2,
        "outputTokens": 1,
        "cacheReadTokens": 0,
        "cacheWriteTokens": 0,
        "totalTokens": 3,
        "exact": True,
    }
    content = [{"type": "text", "text": f"say {number}"}]
    done = {"turn_id": turn, "response": "yes", "stop_reason": "end_turn", "usage": usage}
    prompt = block("user_message", f"{NATIVE}:{number}:prompt", content=f"say {number}")
    answer = block("assistant_text", f"{NATIVE}:{number}:answer", content="yes")
    start = {"turn_id": turn, "message_ids": [message], "provider": "echo", "attempt": 1}
    enqueued = {"message_id": message, "sender": "cli", "kind": "user", "content": content}
    active = {"from": "created", "to": "active", "reason": "send"}
    file = {"path": f"{NATIVE}.jsonl", "role": "main", "size": number * 10, "sha256": "0" * 64}
    return [
        ("message.enqueued", enqueued),
        *([("session.state", active)] if number == 1 else []),
        ("turn.start", start),
        ("block", {"turn_id": turn, "block": prompt}),
        ("block", {"turn_id": turn, "block": answer}),
        ("transcript.synced", {"files": [file]}),
        ("turn.complete", done),
        ("message.delivered", {"message_id": message, "outcome": "completed"}),
    ]


@pytest.fixture
def agents(tmp_path: Path) -> Agents:
    """Return an empty agents directory with a fixed clock."""
    return Agents(Layout(tmp_path / "root"))


@pytest.fixture
def make_block() -> Any:
    """Return the maker of blocks."""
    return block


@pytest.fixture
def one_turn() -> Any:
    """Return the maker of a turn's events."""
    return turn_events
