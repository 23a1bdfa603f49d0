"""A file that is read whole has a limit: no parser spins, and no memory is filled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

DOTTED = "a." * 50_000 + "a = 1\n"
LONG_LINE = "a." * 1001 + "a = 1\n"
HUGE = 10 * 1024**3


def swell(path: Path, size: int = HUGE, begin: bytes = b"") -> None:
    """Make a sparse file of a size that no memory should be asked for."""
    path.write_bytes(begin)
    os.truncate(path, size)


@pytest.mark.parametrize("text", [DOTTED, LONG_LINE], ids=["size", "dots"])
def test_settings_that_would_take_a_parser_minutes_are_refused(shell: Any, text: str) -> None:
    """Writers and `validate` say so at once; readers go on."""
    shell.new("--name", "demo")
    (shell.root / "settings.toml").write_text(text)

    for line in (["send", "demo", "hi"], ["queue", "demo", "hi"], ["restore"]):
        done = shell(*line, "--json")
        assert (done.code, done.error["kind"]) == (12, "bad-settings")
        assert "has over" in done.error["message"]
    assert "has over" in shell("validate").out
    assert shell.ok("inspect", "demo").out


def test_a_list_of_trusted_roots_has_a_limit(shell: Any) -> None:
    """One beyond it trusts nothing, and says why."""
    trusted = shell.home / ".config" / "agentsdir" / "trusted.json"
    trusted.parent.mkdir(parents=True)
    swell(trusted)
    shell.variables["AGENTSDIR_ROOT"] = ""
    shell("--root", ".agentsdir", "new", "--name", "demo")

    done = shell("send", "demo", "hi", "--json")

    assert (done.code, done.error["kind"]) == (14, "untrusted-root")
    assert "has over 1048576 bytes" in done.error["message"]


def test_config_toml_has_a_limit(shell: Any) -> None:
    """Beyond it no client is started."""
    config = shell.home / ".config" / "agentsdir" / "config.toml"
    config.parent.mkdir(parents=True)
    swell(config)
    config.chmod(0o600)
    agent = shell.new("--provider", "claude")

    done = shell("send", agent, "hi", "--json")

    assert (done.code, done.error["kind"]) == (12, "bad-config")
    assert "has over 65536 bytes" in done.error["message"]


def test_an_agent_file_has_a_limit(shell: Any) -> None:
    """It may be a stranger's."""
    parent = shell.new()
    swell(shell.cwd / "agent.toml")

    done = shell("spawn", "--parent", parent, "--file", "agent.toml", "--json")

    assert (done.code, done.error["kind"]) == (12, "bad-agent-file")
    assert "has over 262144 bytes" in done.error["message"]


def test_the_document_of_a_root_has_a_limit(shell: Any) -> None:
    """No command reads on."""
    agent = shell.new()
    swell(shell.root / "agentsdir.json")
    for line in (["list"], ["queue", agent, "hi"]):
        done = shell(*line, "--json")
        assert (done.code, done.error["kind"]) == (12, "too-large")


@pytest.mark.parametrize("name", ["state.json", "session.json", "history.jsonl", "descriptor.json"])
def test_a_huge_derived_file_is_made_again(shell: Any, name: str) -> None:
    """No reader takes it for what it should be."""
    agent = shell.new()
    shell.ok("send", agent, "hi")
    shell.ok("suspend", agent)
    path = shell.folder(agent) / name
    before = path.read_bytes()
    swell(path)

    assert shell("inspect", agent).code in (0, 3)
    shell("restore", agent)

    if name != "descriptor.json":
        assert path.read_bytes() == before


def test_a_huge_manifest_of_captured_files_is_refused(shell: Any) -> None:
    """It may have come with a bundle."""
    agent = shell.new("--cwd", str(shell.cwd))
    (shell.cwd / "a").write_text("a")
    shell.ok("send", agent, "hi")
    shell("suspend", "--capture", agent)
    swell(shell.folder(agent) / "workspace" / "manifest.json")

    done = shell("resume", "--workspace", agent, "--json")

    assert (done.code, done.error["kind"]) == (12, "too-large")


def test_what_a_huge_ignore_file_names_is_not_captured(shell: Any) -> None:
    """A capture that cannot know what to leave out is refused."""
    agent = shell.new("--cwd", str(shell.cwd))
    shell.ok("send", agent, "hi")
    swell(shell.cwd / ".gitignore", begin=b"*.key\n")
    (shell.cwd / "a.key").write_text("secret")

    done = shell("suspend", "--capture", agent, "--json")

    assert (done.code, done.error["kind"]) == (12, "too-large")


def test_a_transcript_that_is_one_document_has_a_limit(shell: Any) -> None:
    """It is remarked on, and the others are read; alone it is an error."""
    begin = b'{"sessionId":"s","projectHash":"h","startTime":"t","messages":['
    folder = shell.cwd / "chats"
    folder.mkdir()
    swell(folder / "session-1.json", begin=begin)
    row = b'{"type":"text_delta","conversationId":"main","blockId":"b","delta":"hi"}\n'
    (folder / "other.jsonl").write_bytes(row)

    alone = shell("parse", "chats/session-1.json")
    both = shell("parse", "chats")

    assert (alone.code, "is one document of over 268435456 bytes" in alone.err) == (1, True)
    assert "is one document of over" in both.err
    assert both.code == 3
