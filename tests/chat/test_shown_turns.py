"""What the prompt makes of a turn: lines for the scrollback, rows, and how full the context is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.cells import width_of, wrapped
from agentsdir.cli.chat.agents import ChatAgent, status_line
from agentsdir.cli.chat.turns import ShownTurn
from agentsdir.cli.colour import PLAIN

STREAMS = Path(__file__).parents[2] / "fixtures" / "golden" / "claude-stream"


def played(name: str, columns: int = 80) -> tuple[ShownTurn, list[str]]:
    """Return a turn that has taken a recorded stream, and its lines."""
    turn = ShownTurn("do it", columns, "utf-8", PLAIN, 0.0)
    lines: list[str] = []
    for number, line in enumerate((STREAMS / name).read_text().splitlines()):
        event: dict[str, Any] = json.loads(line)
        lines += turn.take(event, float(number))
        assert all(width_of(row) < columns for row in turn.live(5, float(number)))
        assert len(turn.live(5, float(number))) <= 6
    return turn, [*lines, *turn.end(50.0, None, None)]


def test_a_clients_turn_has_each_call_and_each_answer_once() -> None:
    """The recording of Claude Code has four calls."""
    turn, lines = played("stdout-tools-2.1.98.jsonl")
    assert len(turn.calls) == 4
    assert sum(line.startswith("● ") for line in lines) == 4
    assert turn.live(5, 51.0)[:-1] == []  # nothing is left of the answer
    for key in turn.calls:
        assert any("input:" in line for line in turn.unfolded(key))


def test_the_context_is_what_the_last_call_of_the_model_took_of_what_the_client_says() -> None:
    """Not what the turn took in all; and nothing where the client says no window."""
    turn, _ = played("stdout-tools-2.1.98.jsonl")
    assert (turn.context.used, turn.context.window) == (122377 - 97735, 200000)
    agent = ChatAgent({"agentId": "a" * 24, "provider": "claude", "state": "active"})
    agent.last = turn
    assert "context 12%" in status_line(agent, "")
    turn.context.window = 0
    assert "context" not in status_line(agent, "")


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])), st.integers(2, 30))
def test_a_wrapped_line_fits_and_is_whole(line: str, columns: int) -> None:
    """Also of wide characters, and of marks that take no column."""
    rows = wrapped(line, columns)
    assert "".join(rows) == line
    assert all(width_of(row) <= columns for row in rows)
