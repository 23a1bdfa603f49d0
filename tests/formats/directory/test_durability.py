"""When bytes become durable, and what happens once a disk would not confirm them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agentsdir.formats.errors import Invalid, Uncertain, UnsafePath
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.derived import derived_document
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.settings import Settings, read_settings


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of what is fsynced from now on."""
    names: list[str] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return names


def talk(agents: Any, paths: Any, disk: Disk, one_turn: Any) -> int:
    """Append a whole turn in one command; return the number of events."""
    events = one_turn(1)
    with disk.synced_at_end():
        for event, data in events:
            with write_agent(paths, disk=disk) as writer:
                writer.append(event, data, agents.now())
    return len(events)


@pytest.mark.feature("B-08")
def test_each_event_is_durable_before_the_next_one(
    agents: Any, one_turn: Any, synced: list[str]
) -> None:
    """One fsync of the log for each, and none that the promise does not need."""
    paths = agents.publish()
    synced.clear()
    count = talk(agents, paths, Disk(Durability.ALWAYS), one_turn)
    assert synced.count("events.jsonl") == count
    assert "history.jsonl" not in synced


def test_a_batch_is_durable_with_one_fsync_at_its_end(
    agents: Any, one_turn: Any, synced: list[str]
) -> None:
    """Only then do the derived documents follow: they are never ahead of the log."""
    paths = agents.publish()
    synced.clear()
    before = paths.state.read_bytes()
    disk = Disk(Durability.BATCH)
    with disk.synced_at_end():
        for event, data in one_turn(1):
            with write_agent(paths, disk=disk) as writer:
                writer.append(event, data, agents.now())
        assert synced == []
        assert paths.state.read_bytes() == before
    assert synced.count("events.jsonl") == 1
    assert read_agent(paths, whole=True).state == read_agent(paths).state
    assert paths.state.read_bytes() != before


@pytest.mark.parametrize("durability", [Durability.ALWAYS, Durability.NEVER])
def test_state_json_is_written_when_the_session_changes_and_when_the_command_ends(
    agents: Any, durability: str
) -> None:
    """Not after each event: readers fold what came after it, and miss nothing."""
    paths = agents.publish()
    disk = Disk(durability)
    before = paths.state.read_bytes()

    def append(event: str, data: dict[str, Any]) -> bytes:
        with write_agent(paths, disk=disk) as writer:
            writer.append(event, data, agents.now())
        assert read_agent(paths, whole=True).state == read_agent(paths).state
        return paths.state.read_bytes()

    with disk.synced_at_end():
        assert append("agent.tagged", {"tags": ["a"]}) == before
        changed = append("session.state", {"from": "created", "to": "active", "reason": "send"})
        assert changed != before
        assert append("agent.tagged", {"tags": ["b"]}) == changed
        with disk.synced_at_end():
            assert append("agent.tagged", {"tags": ["c"]}) == changed
        inner = paths.state.read_bytes()
        assert inner != changed
        assert append("agent.tagged", {"tags": ["d"]}) == inner
    assert derived_document(read_agent(paths, whole=True).state, "state.json") == (
        paths.state.read_bytes()
    )


def test_an_agent_that_goes_before_the_command_ends_is_no_error(agents: Any) -> None:
    """Its state.json cannot be written any more, and its folder is not made again."""
    paths = agents.publish()
    disk = Disk()
    with disk.synced_at_end():
        with write_agent(paths, disk=disk) as writer:
            writer.append("agent.tagged", {"tags": ["a"]}, agents.now())
        paths.folder.rename(paths.folder.with_name(".tmp-removed"))
    assert not paths.folder.exists()


def test_a_batch_that_fails_is_made_durable_too(agents: Any, synced: list[str]) -> None:
    """What was recorded before the failure is acknowledged by the error's exit code."""
    paths = agents.publish()
    synced.clear()
    disk = Disk(Durability.BATCH)

    def failing() -> None:
        with disk.synced_at_end(), write_agent(paths, disk=disk) as writer:
            writer.append("history.reset", {}, agents.now())
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert synced.count("events.jsonl") == 1


def test_never_means_no_fsync_at_all(agents: Any, one_turn: Any, synced: list[str]) -> None:
    """And the same bytes in the end."""
    paths = agents.publish()
    synced.clear()
    talk(agents, paths, Disk(Durability.NEVER), one_turn)
    assert synced == []
    assert read_agent(paths, whole=True).findings == ()


def test_after_a_refused_fsync_nothing_more_is_written(
    agents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not tried again, and this command leaves the agent alone."""
    paths = agents.publish()
    disk = Disk()
    calls = 0

    def refusing(_descriptor: int) -> None:
        nonlocal calls
        calls += 1
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refusing)
    with pytest.raises(Uncertain, match=r"events\.jsonl"), write_agent(paths, disk=disk) as writer:
        writer.append("history.reset", {}, agents.now())
    log = paths.log.read_bytes()
    with pytest.raises(Uncertain, match="nothing more"), write_agent(paths, disk=disk):
        pass
    assert calls == 1
    assert paths.log.read_bytes() == log
    monkeypatch.undo()
    agents.append(paths, "history.reset", {})  # another command may


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "always"),
        ("max_slots = 4\n[future]\nx = 1\n", "always"),
        *((f'durability = "{one}"', one) for one in Durability.ALL),
    ],
)
def test_the_settings_say_how_durable(tmp_path: Path, text: str, expected: str) -> None:
    """What is not known here is left alone."""
    (tmp_path / "settings.toml").write_text(text)
    assert read_settings(Layout(tmp_path)).durability == expected


def test_a_root_without_settings_has_the_defaults(tmp_path: Path) -> None:
    """So does one that is not there yet."""
    assert read_settings(Layout(tmp_path)) == Settings()
    assert read_settings(Layout(tmp_path / "none")) == Settings()


NONSENSE = [
    b"durability = 3",
    b'durability = "some"',
    b"=",
    b"\xff",
    b"provider = 1",
    b'provider = ""',
    b'fallbacks = "gemini"',
    b'fallbacks = [""]',
]


def test_the_settings_say_who_answers_and_who_stands_in(tmp_path: Path) -> None:
    """By name, whatever is installed: a root may be carried elsewhere."""
    (tmp_path / "settings.toml").write_text('provider = "mine"\nfallbacks = ["a", "b"]\n')
    found = read_settings(Layout(tmp_path))
    assert (found.provider, found.fallbacks) == ("mine", ("a", "b"))


@pytest.mark.parametrize("data", NONSENSE)
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, data: bytes) -> None:
    """With the file and the reason."""
    (tmp_path / "settings.toml").write_bytes(data)
    with pytest.raises(Invalid, match=r"settings\.toml") as refused:
        read_settings(Layout(tmp_path))
    assert refused.value.kind == "bad-settings"


def test_settings_are_never_read_through_a_link(tmp_path: Path) -> None:
    """A link could lead anywhere."""
    (tmp_path / "settings.toml").symlink_to("/dev/zero")
    with pytest.raises(UnsafePath):
        read_settings(Layout(tmp_path))
