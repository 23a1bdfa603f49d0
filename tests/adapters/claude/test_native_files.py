"""Which files of the client's store are a session's, and the paths that they are saved under."""

from __future__ import annotations

from pathlib import Path

import pytest
from claude_support import SESSION, lines, row

from agentsdir.adapters.claude.native_files import native_files, session_files
from agentsdir.adapters.contract import Host, SessionSpec
from agentsdir.formats.errors import UnsafePath
from agentsdir.formats.reading.source import Source


def test_a_moved_session_keeps_its_saved_paths_and_odd_files_theirs(tmp_path: Path) -> None:
    """A file that no client of today would name so has no place under the saved folder."""
    folder = tmp_path / ".claude" / "projects" / "-here"
    folder.mkdir(parents=True)
    told = row("user", "u1", None, message={"role": "user", "content": "hi"})
    aside = {**told, "isSidechain": True, "agentId": "a.b"}
    (folder / f"{SESSION}.jsonl").write_bytes(lines(told))
    (folder / "agent-a.b.jsonl").write_bytes(lines(aside))
    saved = f"projects/-there/{SESSION}.jsonl"
    spec = SessionSpec(
        SESSION,
        "",
        "",
        str(tmp_path),
        now=str,
        sleep=print,
        new_id=str,
        transcripts={saved: Source(saved, data=b"")},
        host=Host(tmp_path),
    )

    paths = [file.path for file in session_files(spec)]

    assert paths == [saved, "projects/-here/agent-a.b.jsonl"]


def test_an_id_that_is_the_beginning_of_another_names_no_session(tmp_path: Path) -> None:
    """An agent that was imported may have any native id; the user's own sessions are not its."""
    folder = tmp_path / ".claude" / "projects" / "-here"
    folder.mkdir(parents=True)
    told = row("user", "u1", None, message={"role": "user", "content": "hi"})
    (folder / f"{SESSION}.jsonl").write_bytes(lines(told))

    assert native_files(tmp_path / ".claude", SESSION[:8]) == []
    assert len(native_files(tmp_path / ".claude", SESSION)) == 1


def test_what_no_client_makes_is_none_of_a_sessions_files(tmp_path: Path) -> None:
    """Links, hidden folders, control characters and names without room beside them."""
    folder = tmp_path / "projects" / "-here"
    inside = folder / SESSION / "subagents"
    (inside / ".hidden").mkdir(parents=True)
    told = row("user", "u1", None, message={"role": "user", "content": "hi"})
    (folder / f"{SESSION}.jsonl").write_bytes(lines(told))
    aside = lines({**told, "isSidechain": True, "agentId": "a1"})
    long = f"agent-{'a' * 243}.jsonl"
    for name in ("agent-a1.jsonl", "agent-a\n.jsonl", ".hidden/agent-a2.jsonl", long):
        (inside / name).write_bytes(aside)
    (inside / "agent-a3.jsonl").symlink_to(inside / "agent-a1.jsonl")
    names = [Path(file.path).name for file in native_files(tmp_path, SESSION)]
    assert sorted(names) == [f"{SESSION}.jsonl", "agent-a1.jsonl", long]


def test_a_transcript_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """It could lead to anything, and all of it would be copied."""
    folder = tmp_path / "projects" / "-here"
    folder.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_bytes(lines(row("user", "u1", None, message={"role": "user", "content": "hi"})))
    (folder / f"{SESSION}.jsonl").symlink_to(secret)
    with pytest.raises(UnsafePath, match="is a link"):
        native_files(tmp_path, SESSION)
