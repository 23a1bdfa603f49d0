"""What was typed before: kept for its user alone, and never the reason that nothing works."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentsdir.cli.chat.history import MAX_ENTRIES, KeptHistory, state_folder


class Told:
    """A history in a folder, and what it says is wrong."""

    def __init__(self, folder: Path) -> None:
        self.notes: list[str] = []
        self.history = KeptHistory(folder, self.notes.append)

    def entries(self) -> list[str]:
        """Return the entries, the newest first."""
        return list(self.history.load_history_strings())


def test_what_was_typed_comes_back_newest_first_to_its_user_alone(tmp_path: Path) -> None:
    """Also what is no well-formed text."""
    folder = tmp_path / "state"
    first = Told(folder)
    for text in ("one", "two\nlines", "\ud800 half"):
        first.history.store_string(text)

    path = folder / "chat-history.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert Told(folder).entries() == ["? half", "two\nlines", "one"]
    assert first.notes == []


def test_a_file_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    """It may come from a backup, or from another program."""
    path = tmp_path / "chat-history.jsonl"
    path.write_text('"one"\n')
    path.chmod(0o644)
    assert Told(tmp_path).entries() == ["one"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "damage", [b'"torn', b"\0\0\0\n", b"\xff\n", b"{}\n", b'"one" "two"\n', b"1" * 5000 + b"\n"]
)
def test_a_damaged_file_is_set_aside_and_what_is_sound_goes_on(
    tmp_path: Path, damage: bytes
) -> None:
    """Once: what follows is sound again."""
    path = tmp_path / "chat-history.jsonl"
    path.write_bytes(b'"before"\n' + damage)
    (tmp_path / "chat-history.jsonl.damaged-1").write_text("an earlier one")

    told = Told(tmp_path)

    assert told.entries() == ["before"]
    assert [note for note in told.notes if "damaged-2" in note] == told.notes != []
    assert (tmp_path / "chat-history.jsonl.damaged-2").read_bytes() == b'"before"\n' + damage
    again = Told(tmp_path)
    again.history.store_string("after")
    assert again.entries() == ["after", "before"]
    assert again.notes == []


def test_what_is_no_file_of_the_user_is_left_alone_and_named_once(tmp_path: Path) -> None:
    """A FIFO does not block, and a link is not followed."""
    os.mkfifo(tmp_path / "chat-history.jsonl")
    told = Told(tmp_path)
    assert told.entries() == []
    told.history.store_string("one")
    told.history.store_string("two")
    assert len(told.notes) == 1

    linked = tmp_path / "linked"
    linked.mkdir()
    (tmp_path / "victim").write_text("kept")
    (linked / "chat-history.jsonl").symlink_to(tmp_path / "victim")
    told = Told(linked)
    told.history.store_string("one")
    assert (tmp_path / "victim").read_text() == "kept"
    assert len(told.notes) == 1


def test_a_folder_that_cannot_be_made_costs_the_history_and_nothing_else(tmp_path: Path) -> None:
    """It is said once."""
    (tmp_path / "file").write_text("")
    told = Told(tmp_path / "file" / "state")
    told.history.store_string("one")
    assert len(told.notes) == 1


def test_of_a_long_history_the_newest_are_kept(tmp_path: Path) -> None:
    """The file does not grow for ever."""
    path = tmp_path / "chat-history.jsonl"
    path.write_text("".join(json.dumps(str(number)) + "\n" for number in range(MAX_ENTRIES + 10)))
    entries = Told(tmp_path).entries()
    assert len(entries) == MAX_ENTRIES
    assert entries[0] == str(MAX_ENTRIES + 9)
    assert len(path.read_text().splitlines()) == MAX_ENTRIES


def test_the_folder_is_that_of_xdg_if_it_is_absolute(tmp_path: Path) -> None:
    """Else it is below the home directory."""
    home = tmp_path / "home"
    assert state_folder({"XDG_STATE_HOME": "/s"}, home) == Path("/s/agentsdir")
    for useless in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}):
        assert state_folder(useless, home) == home / ".local" / "state" / "agentsdir"
