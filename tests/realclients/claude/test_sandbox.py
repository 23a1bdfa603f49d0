"""A sandbox of the library with Claude Code."""

from __future__ import annotations

import pytest
from claude_desk import ClaudeDesk as Desk
from sandboxed import check


@pytest.mark.feature("B-10")
def test_a_sandbox_runs_the_client_through_its_adapter_alone(
    any_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Profile, turns, and the session's files, which another sandbox goes on with."""
    check(any_desk, "claude-agent-sdk", "CLAUDE.md", monkeypatch)
