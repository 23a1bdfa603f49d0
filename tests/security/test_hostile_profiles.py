"""A profile comes with a root, maybe a stranger's: it brings words, and nothing that runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import program_of
from agentsdir.engine import providers
from agentsdir.engine.providers import load_profile
from agentsdir.formats.errors import AgentsdirError, Invalid, UsageError
from agentsdir.formats.store.layout import Layout


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return the folder of a profile with all that one may have."""
    folder = tmp_path / "root" / "profiles" / "good"
    for name, text in (
        ("instructions.md", "Be brief."),
        ("skills/look/SKILL.md", "---\nname: look\nallowed-tools: Read\n---\nhooks: are fine here"),
        ("skills/look/deeper/more.txt", "more"),
        ("agents/reader.md", "---\nname: reader\n---\nRead."),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def load(top: Path, name: str = "good") -> providers.Profile:
    """Load a profile of the root."""
    return load_profile(Layout(top.parents[1]), name)


def test_an_honest_profile_is_taken_whole(top: Path) -> None:
    """Its files have their places in the workspace."""
    for client, folder, name in (
        ("claude", ".claude", "CLAUDE.md"),
        ("gemini", ".gemini", "GEMINI.md"),
    ):
        program = program_of(registry.get(client).provider)
        assert program is not None
        assert sorted(program.workspace_files(load(top))) == [
            f"{folder}/agents/reader.md",
            f"{folder}/skills/look/SKILL.md",
            f"{folder}/skills/look/deeper/more.txt",
            name,
        ]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../good", "a/b", "/etc", ".hidden", "x" * 65, "no"]
)
def test_a_name_cannot_lead_out(top: Path, name: str) -> None:
    """Only a plain name is looked for."""
    with pytest.raises(UsageError) as caught:
        load(top, name)
    assert caught.value.kind == "no-such-profile"


@pytest.mark.parametrize(
    "name",
    [
        "settings.json", "skills/settings.json", "skills/x/settings.local.json", "agents/.mcp.json",
        "skills/mcp.json", "skills/hooks/run.sh", "skills/hooks.json", "skills/Hooks/x", "hooks/x",
        "commands/x.md", "CLAUDE.md", "other.txt", "skills", "agents",
        "instructions.md/x", "skills/a\nb", "skills/a\\b",
    ],
)  # fmt: skip
def test_what_no_profile_may_hold_refuses_it(top: Path, name: str) -> None:
    """Settings, hooks, servers and strangers are refused by name, not passed over."""
    path = top / name
    if name in ("skills", "agents"):
        top.joinpath(name).rename(top.parent / "away")
    if name.startswith("instructions.md"):
        (top / "instructions.md").unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")

    with pytest.raises(Invalid):
        load(top)


@pytest.mark.parametrize(
    "key",
    [
        "hooks:", "mcpServers:", "permissionMode: x", "hooks :", "'hooks':", "x: {Hooks: y}",
        "mcp_servers:", "agent_card_url: http://x", "- agent_card_json: '{}'",
        '"mcp\\x5fservers":', '{"\\u0068ooks": y}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_front_matter_brings_nothing_that_runs(top: Path, key: str, newline: str) -> None:
    """Clients take hooks and servers from it, too."""
    text = newline.join(["---", "name: x", key, "  a: b", "---", "text"])
    (top / "agents" / "evil.md").write_bytes(text.encode())

    with pytest.raises(Invalid, match="hooks"):
        load(top)


@pytest.mark.parametrize("place", ["instructions.md", "skills", "skills/link", "agents/fifo"])
def test_links_and_oddities_are_refused(top: Path, tmp_path: Path, place: str) -> None:
    """What is outside of a profile is not written into a workspace."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    path = top / place
    if path.exists():
        path.rename(top.parent / "away")
    if place.endswith("fifo"):
        os.mkfifo(path)
    else:
        path.symlink_to(secret / "key" if "." in place else secret)

    with pytest.raises(AgentsdirError):
        load(top)


def test_a_profile_that_is_a_link_is_none(top: Path, tmp_path: Path) -> None:
    """Nor is one in a folder of profiles that is a link."""
    (top.parent / "linked").symlink_to(top)
    with pytest.raises(UsageError):
        load(top, "linked")
    top.parent.rename(tmp_path / "away")
    top.parent.symlink_to(tmp_path / "away")
    with pytest.raises(UsageError):
        load(top)


def test_a_profile_has_a_size(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes, and in files."""
    monkeypatch.setattr(providers, "MAX_FILES", 3)
    with pytest.raises(Invalid, match="more than"):
        load(top)
    monkeypatch.setattr(providers, "MAX_FILES", 4)
    assert load(top).instructions == "Be brief."
    monkeypatch.setattr(providers, "MAX_SIZE", 10)
    with pytest.raises(Invalid, match="more than"):
        load(top)
