"""Gemini CLI answers where Claude Code's API is down; the agent stays Claude's (decision D24)."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from claude_desk import ClaudeDesk as Desk

sys.path.insert(0, str(Path(__file__).parents[1] / "gemini"))  # the other client's stage

from gemini_api import GeminiApi
from gemini_desk import GeminiDesk

CLIENT = os.environ.get("AGENTSDIR_TEST_GEMINI", "").split(":")[0]


@pytest.fixture
def gemini(desk: Desk, tmp_path: Path) -> Iterator[GeminiApi]:
    """Set up Gemini CLI for the same user, beside Claude Code, and return the API that it asks."""
    if not CLIENT:
        pytest.skip("AGENTSDIR_TEST_GEMINI names no client; see .ci/clients")
    with GeminiApi() as api:
        other = GeminiDesk(tmp_path / "other", Path(CLIENT), api)
        shutil.copytree(other.store, desk.home / other.store.name)
        with (desk.config / "config.toml").open("a") as config:
            config.write((other.config / "config.toml").read_text())
        yield api


@pytest.mark.feature("T-07")
def test_the_other_client_answers_with_the_context_and_the_first_hears_of_it(
    desk: Desk, gemini: GeminiApi
) -> None:
    """Nothing that was said is lost on either of them, and neither gets anything twice."""
    agent = desk.new("--fallback", "gemini")
    desk.send(agent, "hello")
    done = desk.send(agent, "elsewhere", "--json")
    assert (done.code, done.json["response"]) == (0, "Seven sheep."), done
    (step,) = desk.of(agent, "provider.fallback")
    assert (step["from"], step["to"], step["attempt"]) == ("claude", "gemini", 2)
    assert step["reason"].startswith("api-error: ")
    (heard,) = gemini.of("elsewhere")
    assert any('{"role":"assistant","text":"Good day."}' in text for text in heard.texts)

    done = desk.send(agent, "again")
    assert (done.code, done.out) == (0, "This is the next turn.\n"), done
    (request,) = desk.api.of("again")
    assert sum('{"role":"assistant","text":"Seven sheep."}' in t for t in request.texts) == 1
    assert "Good day." in request.texts
    assert not any('"text":"Good day."' in text for text in request.texts)
    desk.sound(agent)
    given_up = [b["type"] for b in desk.blocks(agent).values() if b.get("superseded")]
    assert (given_up[0], set(given_up[1:])) == ("user_message", {"system"})
    changed = [one for one in desk.of(agent, "native.changed") if one["reason"] == "fallback"]
    assert [one["native"]["architecture"] for one in changed] == ["gemini-cli", "claude-agent-sdk"]
