"""A sandbox of the library with Gemini CLI."""

from __future__ import annotations

import pytest
from gemini_desk import GeminiDesk as Desk
from sandboxed import check


@pytest.mark.feature("B-10")
def test_a_sandbox_runs_the_client_through_its_adapter_alone(
    any_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Profile, turns, and the session's files, which another sandbox goes on with."""
    check(any_desk, "gemini-cli", "GEMINI.md", monkeypatch)
