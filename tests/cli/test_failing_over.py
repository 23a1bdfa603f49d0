"""Fallback and limits, as typed and as settings.toml says them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

DOWN = '{"type": "error", "kind": "rate-limited", "message": "try later"}\n'


def script(tmp_path: Path, text: str) -> str:
    """Write a script, and return its path."""
    path = tmp_path / "play.jsonl"
    path.write_text(text)
    return str(path)


@pytest.mark.feature("T-07")
def test_the_provider_that_answered_is_named(shell: Any, tmp_path: Path) -> None:
    """On standard error: the answer alone is on standard output. The directory stays valid."""
    agent = shell.script(script(tmp_path, DOWN), "--fallback", "echo")
    done = shell("send", agent, "hi")
    assert (done.code, done.out) == (0, "hi\n"), done
    assert "script gave no answer (rate-limited); echo stands in" in done.err
    events = [record["event"] for record in shell.log(agent)]
    assert events.count("provider.fallback") == 1
    shown = shell.ok("inspect", agent, "--json").json
    assert (shown["provider"], shown["fallbacks"]) == ("script", ["echo"])
    assert shell("validate").code == 0
    assert shell.ok("replay", "--check", agent).code == 0
    assert shell("send", agent, "hi", "--json").json["response"].endswith("\n\nhi")


def test_the_root_says_who_answers_where_nothing_else_does(shell: Any, tmp_path: Path) -> None:
    """A provider for new agents, and stand-ins for those that have no list."""
    shell.variables["AGENTSDIR_PROVIDER"] = ""
    shell.new("--provider", "echo")
    settings = shell.root / "settings.toml"
    settings.write_text('provider = "script"\nfallbacks = ["gone", "echo"]\n')
    settings.chmod(0o600)
    agent = shell.new("--option", f"file={script(tmp_path, DOWN)}")
    done = shell("send", agent, "hi")
    assert (done.code, done.out) == (0, "hi\n"), done
    reasons = [r["data"]["reason"] for r in shell.log(agent) if r["event"] == "provider.fallback"]
    assert [reason.partition(":")[0] for reason in reasons] == ["rate-limited", "no-provider"]


@pytest.mark.parametrize(
    "arguments",
    [("--fallback", "nobody"), ("--max-ticks", "-1"), ("--max-ticks", "many")],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_refused(shell: Any, arguments: tuple[str, ...]) -> None:
    """Before anything is made."""
    assert shell("new", *arguments).code == 2
    assert not shell.root.exists()


def test_limits_are_recorded(shell: Any) -> None:
    """With the agent, whose turns they limit."""
    agent = shell.new("--max-ticks", "3")
    assert shell.log(agent)[0]["data"]["limits"] == {"max_ticks": 3}
    assert shell.ok("inspect", agent, "--json").json["limits"] == {"max_ticks": 3}
