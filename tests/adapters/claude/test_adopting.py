"""What a session says of itself to somebody who goes on with it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from agentsdir.adapters.claude.adopting import adoptable
from agentsdir.formats.errors import Invalid

ID = "00000001-0000-4000-8000-000000000001"


def write(path: Path, *rows: dict[str, object]) -> Path:
    """Write a transcript."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def prompt(session: str = ID, **more: object) -> dict[str, object]:
    """Return a prompt's row."""
    said = {"role": "user", "content": "fix the tests"}
    return {
        "parentUuid": None, "isSidechain": False, "type": "user", "message": said, "uuid": "u1",
        "cwd": "/w/p", "sessionId": session, "timestamp": "2026-01-01T00:00:00.000Z", **more,
    }  # fmt: skip


def answer(model: str) -> dict[str, object]:
    """Return an answer's row."""
    return {**prompt(), "type": "assistant", "message": {"role": "assistant", "model": model}}


def test_the_rows_say_where_by_whom_and_about_what(tmp_path: Path) -> None:
    """The first working directory, the last model that was one, and the title."""
    moved = prompt(cwd="/w/elsewhere")
    main = write(tmp_path / f"{ID}.jsonl", prompt(), answer("m-1"), moved, answer("<synthetic>"))

    session = adoptable(main)

    assert session[:4] == (ID, "/w/p", "m-1", "fix the tests")
    assert [file.path for file in session.files] == [f"projects/-w-p/{ID}.jsonl"]


def test_everything_of_the_session_is_taken(tmp_path: Path) -> None:
    """The side folder whole, flat children that are its own, and nothing behind a link."""
    folder = tmp_path / "projects" / "-its-own-name"
    main = write(folder / f"{ID}.jsonl", prompt())
    child = prompt(isSidechain=True, agentId="a1")
    write(folder / ID / "subagents" / "agent-a1.jsonl", child)
    write(folder / ID / "subagents" / "agent-a1.meta.json", {})
    write(folder / ID / "tool-results" / "t.txt", {})
    write(folder / "agent-flat.jsonl", {**child, "agentId": "flat"})
    write(folder / "agent-other.jsonl", {**child, "agentId": "other", "sessionId": "x"})
    (folder / ID / "secret.txt").symlink_to("/etc/passwd")
    (folder / ID / "deeper").symlink_to(tmp_path)

    start = "projects/-its-own-name"
    assert [(file.path, file.role) for file in adoptable(main).files] == [
        (f"{start}/{ID}.jsonl", "main"),
        (f"{start}/{ID}/subagents/agent-a1.jsonl", "subagent"),
        (f"{start}/{ID}/subagents/agent-a1.meta.json", "sidecar"),
        (f"{start}/{ID}/tool-results/t.txt", "output"),
        (f"{start}/agent-flat.jsonl", "subagent"),
    ]


def test_a_renamed_file_is_what_its_rows_say(tmp_path: Path) -> None:
    """And is stored under its id."""
    session = adoptable(write(tmp_path / "backup.jsonl", prompt()))

    assert (session.id, session.files[0].path) == (ID, f"projects/-w-p/{ID}.jsonl")


@pytest.mark.parametrize("name", ["", "../../x", "not-an-id"])
def test_a_session_without_an_id_is_refused(tmp_path: Path, name: str) -> None:
    """The client would not take it."""
    with pytest.raises(Invalid) as caught:
        adoptable(write(tmp_path / "backup.jsonl", prompt(session=name)))
    assert caught.value.kind == "bad-native-id"
