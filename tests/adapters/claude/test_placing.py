"""Saved transcripts are put where the client finds them, and nothing of the client's is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.adapters.claude.paths import munge
from agentsdir.adapters.claude.placing import place
from agentsdir.adapters.contract import Host, SessionSpec
from agentsdir.formats.errors import AgentsdirError, Invalid, UnsafePath
from agentsdir.formats.reading.source import Source

ID = "00000001-0000-4000-8000-000000000001"
SAVED = f"projects/-some-other-place/{ID}.jsonl"
NOW = "2026-01-02T03:04:05.678900Z"


def row(number: int, kind: str, content: Any, message: str = "", **more: Any) -> bytes:
    """Return one row of the main thread, its second of the day being its number."""
    said = {"role": kind, "content": content}
    if kind == "assistant":
        said = {"id": message or f"msg_{number}", **said}
    value = {
        "parentUuid": _uuid(number - 1) if number > 1 else None,
        "isSidechain": False,
        "type": kind,
        "message": said,
        "uuid": _uuid(number),
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        "cwd": "/old",
        "sessionId": ID,
        "version": "2.1.332",
        **more,
    }
    return orjson.dumps(value) + b"\n"


def _uuid(number: int) -> str:
    return f"{number:08}-0000-4000-8000-000000000000"


def call(name: str) -> dict[str, Any]:
    """Return a tool call."""
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {}}


TALK = row(1, "user", "hi", promptId="p1") + row(2, "assistant", [{"type": "text", "text": "yes"}])
CALLS = TALK + row(3, "user", "go on", promptId="p2")
CALLS += row(4, "assistant", [call("a")], "m") + row(5, "assistant", [call("b")], "m")


class Machine:
    """A home, a working directory, and a session that is saved elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.cwd = folder / "work ä"
        for made in (self.home, self.cwd):
            made.mkdir()

    @property
    def folder(self) -> Path:
        """The project's folder."""
        return self.home / ".claude" / "projects" / munge(str(self.cwd.resolve()))

    @property
    def main(self) -> Path:
        """Where the session's transcript belongs."""
        return self.folder / f"{ID}.jsonl"

    def spec(self, saved: dict[str, bytes], **host: Any) -> SessionSpec:
        """Return what `place` is asked for."""
        files = {name: Source(name, data=data) for name, data in saved.items()}
        return SessionSpec(
            ID, "", "", str(self.cwd), lambda: NOW, lambda _seconds: None, lambda: ID,
            transcripts=files, host=Host(self.home, **host),
        )  # fmt: skip

    def place(self, saved: dict[str, bytes], **host: Any) -> list[Path]:
        """Place saved files."""
        return place(self.spec(saved, **host))

    def stand(self, data: bytes, path: Path | None = None) -> Path:
        """Put a transcript in place, as the client would."""
        path = path or self.main
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine on which nobody has used the client yet."""
    return Machine(tmp_path)


@pytest.mark.feature("B-06")
def test_a_session_is_placed_with_its_side_folder(machine: Machine) -> None:
    """All files are the saved bytes, below the folder of the new working directory."""
    side = f"projects/-some-other-place/{ID}"
    files = {
        SAVED: TALK,
        f"{side}/subagents/agent-a1.jsonl": b'{"type":"user"}\n',
        f"{side}/subagents/agent-a1.meta.json": b"{}",
        f"{side}/tool-results/t1.txt": b"long",
        "projects/-some-other-place/agent-0a1b2c3.jsonl": b"{}\n",
    }

    written = machine.place(files)

    assert written[-1] == machine.main
    assert {path.relative_to(machine.folder).as_posix(): path.read_bytes() for path in written} == {
        f"{ID}.jsonl": TALK,
        f"{ID}/subagents/agent-a1.jsonl": b'{"type":"user"}\n',
        f"{ID}/subagents/agent-a1.meta.json": b"{}",
        f"{ID}/tool-results/t1.txt": b"long",
        "agent-0a1b2c3.jsonl": b"{}\n",
    }
    assert machine.place(files) == []


def test_what_is_placed_is_private(machine: Machine) -> None:
    """Folders are 0700 and files 0600, and no temporary file stays."""
    machine.place({SAVED: TALK, f"projects/x/{ID}/subagents/agent-a.jsonl": b"{}\n"})

    for path in machine.home.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
        assert not path.name.endswith(".tmp")


def test_the_clients_own_variable_says_where(machine: Machine, tmp_path: Path) -> None:
    """CLAUDE_CONFIG_DIR moves the store; what is set for the program wins."""
    elsewhere = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    written = machine.place(
        {SAVED: TALK}, variables={"CLAUDE_CONFIG_DIR": "/nowhere"}, environment=elsewhere
    )

    assert written == [tmp_path / "config" / "projects" / machine.folder.name / f"{ID}.jsonl"]


@pytest.mark.parametrize("end", [b"", TALK[:40]])
def test_a_last_line_is_ended(machine: Machine, end: bytes) -> None:
    """An LF follows a last line that lacks one, torn or whole; the saved bytes are a beginning."""
    saved = (TALK + end)[: None if end else -1]
    machine.place({SAVED: saved})

    assert machine.main.read_bytes() == saved + b"\n"


def test_open_calls_at_the_end_are_answered(machine: Machine) -> None:
    """As the client does: one row for each call, hung from it, in its key order, later than all."""
    machine.place({SAVED: CALLS})

    added = machine.main.read_bytes().removeprefix(CALLS).splitlines()
    rows = [orjson.loads(line) for line in added]
    assert [list(one)[:7] for one in rows] == [
        ["parentUuid", "isSidechain", "promptId", "type", "message", "uuid", "timestamp"]
    ] * 2
    assert [one["parentUuid"] for one in rows] == [_uuid(4), _uuid(5)]
    assert [one["message"]["content"][0]["tool_use_id"] for one in rows] == ["a", "b"]
    assert [one["timestamp"] for one in rows] == [
        "2026-01-02T03:04:05.679Z",
        "2026-01-02T03:04:05.680Z",
    ]
    assert {(one["toolDenialKind"], one["promptId"], one["sessionId"]) for one in rows} == {
        ("interrupted", "p2", ID)
    }
    assert rows[0]["uuid"] != rows[1]["uuid"]


def test_a_clock_that_went_back_does_not_take_the_answers_back(machine: Machine) -> None:
    """The rows are later than the rows before, whatever time it is now."""
    late = CALLS + row(6, "assistant", [call("c")], "m", timestamp="2030-01-01T00:00:00.500Z")
    machine.place({SAVED: late})

    added = [orjson.loads(line) for line in machine.main.read_bytes().splitlines()[6:]]
    assert added[0]["timestamp"] == "2030-01-01T00:00:00.501Z"
    assert len({one["timestamp"] for one in added}) == 3


@pytest.mark.parametrize(
    "after",
    [
        row(6, "user", [{"type": "tool_result", "tool_use_id": name} for name in "ab"]),
        row(6, "user", "never mind"),
        row(6, "assistant", [{"type": "text", "text": "gone on"}]),
    ],
)
def test_calls_that_are_answered_or_past_are_left(machine: Machine, after: bytes) -> None:
    """Nothing is appended where the talk went on."""
    machine.place({SAVED: CALLS + after})

    assert machine.main.read_bytes() == CALLS + after


def test_a_session_that_has_gone_on_is_left(machine: Machine) -> None:
    """A native file that begins with the saved one is the client's to go on with."""
    path = machine.stand(TALK + row(3, "user", "more"))

    assert machine.place({SAVED: TALK}) == []
    assert path.read_bytes() == TALK + row(3, "user", "more")


@pytest.mark.parametrize("there", [TALK[:-20], TALK.replace(b"yes", b"no!")])
def test_other_bytes_are_never_overwritten(machine: Machine, there: bytes) -> None:
    """A shorter file, or another one, is refused, and nothing at all is written."""
    path = machine.stand(there)

    with pytest.raises(Invalid) as caught:
        machine.place({SAVED: TALK})
    assert caught.value.kind == "transcript-differs"
    assert (path.read_bytes(), len(list(machine.folder.iterdir()))) == (there, 1)


def test_a_file_that_appears_meanwhile_is_never_replaced(machine: Machine) -> None:
    """The client may begin the session between the look and the write."""

    def now() -> str:
        machine.stand(b"the client's own\n")
        return NOW

    with pytest.raises(Invalid) as caught:
        place(machine.spec({SAVED: TALK})._replace(now=now))
    assert caught.value.kind == "transcript-differs"
    assert machine.main.read_bytes() == b"the client's own\n"
    assert [path.name for path in machine.folder.iterdir()] == [machine.main.name]


def test_an_empty_file_says_that_nothing_is_here(machine: Machine) -> None:
    """Some clients leave one; it gives way."""
    machine.stand(b"")

    assert machine.place({SAVED: TALK}) == [machine.main]
    assert machine.main.read_bytes() == TALK


def test_a_session_in_another_folder_of_the_store_stays_there(machine: Machine) -> None:
    """One session, one file: a copy beside it would be a second truth."""
    other = machine.folder.with_name("-elsewhere")
    machine.stand(TALK, other / f"{ID}.jsonl")

    side = f"projects/x/{ID}/subagents/agent-a.jsonl"
    assert machine.place({SAVED: TALK, side: b"{}\n"}) == [
        other / ID / "subagents" / "agent-a.jsonl"
    ]
    assert not machine.folder.exists()


def test_a_cut_folder_name_is_found_by_its_beginning(machine: Machine) -> None:
    """The hash after 200 characters differs between the client's runtimes."""
    machine.cwd = machine.cwd / "/".join(["x" * 60] * 5)
    machine.cwd.mkdir(parents=True)
    other = machine.folder.with_name(machine.folder.name[:201] + "zzzzzz")
    other.mkdir(parents=True)

    assert machine.place({SAVED: TALK}) == [other / f"{ID}.jsonl"]


def test_the_longest_saved_copy_is_the_latest(machine: Machine) -> None:
    """A session that was placed in two folders in its life is saved under both."""
    machine.place({SAVED: TALK, f"projects/-b/{ID}.jsonl": TALK + row(3, "user", "more")})

    assert machine.main.read_bytes() == TALK + row(3, "user", "more")


@pytest.mark.parametrize(
    "name",
    [
        "projects/x/00000002-0000-4000-8000-000000000002.jsonl",
        f"settings/{ID}.jsonl",
        f"projects/x/{ID}/../../../settings.json",
        f"projects/x/{ID}/.hidden",
        f"projects/x/{ID}/a\nb",
        "projects/x/memory/note.md",
        "projects/x/agent-../x.jsonl",
        f"projects/x/{ID}//a",
    ],
)
def test_only_the_sessions_own_files_have_a_place(machine: Machine, name: str) -> None:
    """What an imported bundle calls a transcript cannot become anything else of the client's."""
    assert machine.place({SAVED: TALK, name: b"x"}) == [machine.main]
    assert [path for path in machine.home.rglob("*") if path.is_file()] == [machine.main]


@pytest.mark.parametrize("native", ["../x", "x", "", "0000000A-0000-4000-8000-000000000001"])
def test_only_an_id_names_a_session(machine: Machine, native: str) -> None:
    """Anything else the client would not take is not placed."""
    spec = machine.spec({f"projects/x/{native}.jsonl": TALK})._replace(native_id=native)

    assert place(spec) == []


@pytest.mark.parametrize("what", ["projects", "folder", "file", "dangling"])
def test_nothing_is_written_behind_a_link(machine: Machine, tmp_path: Path, what: str) -> None:
    """A link in the store leads nowhere: what is outside stays as it was."""
    outside = tmp_path / "outside"
    outside.mkdir()
    place_of = {
        "projects": machine.folder.parent,
        "folder": machine.folder,
        "file": machine.main,
        "dangling": machine.main,
    }[what]
    place_of.parent.mkdir(parents=True)
    target = {"file": outside / "file", "dangling": outside / "none"}.get(what, outside)
    if what == "file":
        target.write_bytes(TALK)
    place_of.symlink_to(target)

    with pytest.raises(UnsafePath):
        machine.place({SAVED: TALK})
    assert [path.name for path in outside.iterdir()] == (["file"] if what == "file" else [])


def test_a_fifo_in_place_is_refused(machine: Machine) -> None:
    """It is not opened for good."""
    machine.folder.mkdir(parents=True)
    os.mkfifo(machine.main)

    with pytest.raises(UnsafePath):
        machine.place({SAVED: TALK})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(machine: Machine) -> None:
    """Who owns it could read the session, or change it."""
    machine.folder.mkdir(parents=True)
    os.chown(machine.folder, 12345, 12345)

    with pytest.raises(UnsafePath, match="another user"):
        machine.place({SAVED: TALK})


def test_a_store_that_cannot_be_made_is_an_error_of_ours(machine: Machine) -> None:
    """A file where the store should be is named."""
    (machine.home / ".claude").write_bytes(b"")

    with pytest.raises(AgentsdirError):
        machine.place({SAVED: TALK})
    assert (machine.home / ".claude").read_bytes() == b""


def test_an_agent_without_a_transcript_has_nothing_to_place(machine: Machine) -> None:
    """The first turn makes it."""
    assert machine.place({}) == []
    assert machine.place({f"projects/x/{ID}/subagents/agent-a.jsonl": b"{}\n"}) == []
    assert not (machine.home / ".claude").exists()
