"""A profile is written into the working directory before the first turn, and over nothing."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters.claude.run import ClaudeProvider
from agentsdir.cli.environment import Environment
from agentsdir.cli.trust import is_private
from agentsdir.engine.providers import apply_profile
from agentsdir.formats.errors import AgentsdirError, Invalid, UsageError


@pytest.fixture
def work(stage: Any, tmp_path: Path) -> Path:
    """Return a working directory, with a profile in the root."""
    top = stage.root / "profiles" / "good"
    (top / "agents").mkdir(parents=True)
    (top / "instructions.md").write_text("Be brief.")
    (top / "agents" / "reader.md").write_text("Read.")
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def apply(stage: Any, work: Path, paths: Any = None) -> tuple[Any, list[str]]:
    """Apply the profile as a turn does; return the agent and what the user got to read."""
    paths = paths or stage.new(provider="claude", profile="good", cwd=str(work))
    told: list[str] = []
    services = stage.services._replace(notify_user=told.append)
    apply_profile(services, paths, stage.state(paths), ClaudeProvider())
    return paths, told


def applied(stage: Any, paths: Any) -> list[dict[str, Any]]:
    """Return what the log says of profiles."""
    return [r["data"] for r in stage.log(paths) if r["event"] == "profile.applied"]


@pytest.mark.feature("B-06")
def test_what_is_missing_is_written_and_recorded(stage: Any, work: Path) -> None:
    """With the hash of each file, so that a reader can tell ours from yours."""
    paths, told = apply(stage, work)

    files = {"CLAUDE.md": b"Be brief.", ".claude/agents/reader.md": b"Read."}
    assert {name: (work / name).read_bytes() for name in files} == files
    assert applied(stage, paths) == [
        {
            "profile": "good",
            "cwd": str(work),
            "files": [
                {"path": name, "sha256": sha256(files[name]).hexdigest()} for name in sorted(files)
            ],
            "skipped": [],
        }
    ]
    assert told == []


@pytest.mark.parametrize("what", ["file", "link", "dangling", "folder", "linked-folder"])
def test_what_stands_there_is_left_and_named(
    stage: Any, work: Path, tmp_path: Path, what: str
) -> None:
    """A file of another, a link wherever it leads, a folder."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    place = work / ("CLAUDE.md" if what != "linked-folder" else ".claude")
    match what:
        case "file":
            place.write_text("mine")
        case "folder":
            place.mkdir()
        case "link":
            place.symlink_to(outside / "file")
        case "dangling":
            place.symlink_to(outside / "new")
        case _:
            place.symlink_to(outside)

    paths, told = apply(stage, work)

    (event,) = applied(stage, paths)
    name = "CLAUDE.md" if what != "linked-folder" else ".claude/agents/reader.md"
    assert event["skipped"] == [name]
    assert len(event["files"]) == 1
    assert told == [f"{work / name} is not of the profile good; it was left"]
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "mine"


def test_our_own_file_that_was_changed_is_left(stage: Any, work: Path) -> None:
    """Before a first turn that is tried again; one that is the same needs no word."""
    paths, _ = apply(stage, work)
    (work / "CLAUDE.md").write_text("Be brief, and kind.")

    _, told = apply(stage, work, paths)

    assert (work / "CLAUDE.md").read_text() == "Be brief, and kind."
    assert len(told) == 1
    (work / "CLAUDE.md").write_text("Be brief.")
    before = stage.log(paths)
    assert apply(stage, work, paths)[1] == []
    assert stage.log(paths) == before


def test_a_profile_must_be_there_when_an_agent_is_made(stage: Any, work: Path) -> None:
    """For a provider that has a workspace to write; for the others it is a word."""
    with pytest.raises(UsageError) as caught:
        stage.new(provider="claude", profile="none", cwd=str(work))
    assert caught.value.kind == "no-such-profile"
    assert stage.state(stage.new(provider="echo", profile="none")).profile == "none"


def test_a_turn_that_failed_was_no_first_one(stage: Any, work: Path) -> None:
    """What was refused before it is not passed over after it."""
    paths = stage.new(provider="claude", profile="good", cwd=str(work))
    turn = {"turn_id": "t" * 24, "message_ids": [], "provider": "claude", "attempt": 1}
    stage.append(paths, "turn.start", turn)
    stage.append(paths, "turn.error", {"turn_id": "t" * 24, "kind": "bad-key", "message": "no"})

    apply(stage, work, paths)

    assert (work / "CLAUDE.md").read_bytes() == b"Be brief."


def test_a_working_directory_that_is_gone_is_not_made_again(stage: Any, work: Path) -> None:
    """It may be a disk that is not mounted."""
    paths = stage.new(provider="claude", profile="good", cwd=str(work))
    work.rmdir()

    with pytest.raises(AgentsdirError) as raised:
        apply(stage, work, paths)

    assert (raised.value.kind, work.exists()) == ("no-folder", False)


@pytest.mark.parametrize("where", ["home", "home/.config/tool"])
def test_in_a_home_a_profile_is_no_setting_of_the_user(
    stage: Any, work: Path, tmp_path: Path, where: str
) -> None:
    """A client takes ~/.claude/agents for every project; nothing at all is written."""
    home = tmp_path / "home"
    folder = tmp_path / where
    folder.mkdir(parents=True)
    env = Environment(BytesIO(), StringIO(), StringIO(), {}, folder, home)
    paths = stage.new(provider="claude", profile="good", cwd=str(folder))
    services = stage.services._replace(is_private=partial(is_private, env))

    with pytest.raises(Invalid, match="is where settings are kept") as refused:
        apply_profile(services, paths, stage.state(paths), ClaudeProvider())

    assert refused.value.kind == "private-folder"
    assert "cwd=DIR" in (refused.value.hint or "")
    assert list(folder.iterdir()) == []
    assert applied(stage, paths) == []
