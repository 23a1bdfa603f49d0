"""A sandbox of the library with a real client: through its adapter, without an agents directory."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from agentsdir import AgentSandbox
from agentsdir.adapters.protocol import Profile

SAID = ["Good day.", "This is the next turn."]


def check(desk: Any, architecture: str, instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a profile, run two turns, and go on with the saved files where the client has none.

    Args:
        instructions: the file of the workspace that has a profile's instructions.
    """
    for name, value in desk.environment.items():
        monkeypatch.setenv(name, value)
    sandbox = AgentSandbox(architecture, desk.work)
    assert sandbox.setup_agent_profile(Profile("Be kind.", {}, {})) == [instructions]
    assert (desk.work / instructions).read_text() == "Be kind."

    events = list(sandbox.execute_query(desk.ask("hello")))
    assert "text_delta" in {event["type"] for event in events}
    assert _answers(sandbox) == SAID[:1]

    kept = sandbox.transcripts()
    paths = sandbox.get_paths()
    assert paths.transcripts.is_relative_to(paths.storage)
    shutil.rmtree(paths.transcripts)
    other = AgentSandbox(architecture, desk.work, session_id=sandbox.session_id)
    other.setup_session_transcripts(kept)
    assert _answers(other) == SAID[:1]
    list(other.execute_query(desk.ask("again")))

    assert _answers(other) == SAID
    assert not desk.root.exists()
    desk.quiet()


def _answers(sandbox: AgentSandbox) -> list[str]:
    blocks = sandbox.parse_transcripts()["blocks"]
    return [block["content"] for block in blocks if block["type"] == "assistant_text"]
