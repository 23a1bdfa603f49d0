"""Sessions that are moved, forked and adopted go on in the real client, with all they know."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from carried import goes_on_from_a_document
from claude_desk import ClaudeDesk as Desk

INTERRUPTED = "[Tool call interrupted: the session ended before this call's result was recorded"


def level(desk: Desk, agent: str) -> None:
    """Hold a moved agent to it that what is stored is what the client has, by file."""
    desk.quiet()
    assert desk("validate", "--modes", str(desk.root)).out == ""
    native = {path.rsplit("/", 1)[-1]: data for path, data in _native(desk, agent).items()}
    stored = {path.rsplit("/", 1)[-1]: data for path, data in desk.stored_files(agent).items()}
    assert {name: stored.get(name) for name in native} == native
    assert len(desk.stored_files(agent)) == len(native)


def _native(desk: Desk, agent: str) -> dict[str, bytes]:
    return desk.native_files(desk.native(agent))


def _newest(desk: Desk, native: str) -> bytes:
    """Return the transcript that was written last; an older client is given one a folder."""
    found = desk.store.glob(f"projects/*/{native}.jsonl")
    return max(found, key=lambda path: path.stat().st_mtime_ns).read_bytes()


def moved(desk: Desk, agent: str, other: Desk, *options: str) -> None:
    """Move an agent to another user's desk, through a bundle."""
    bundle = str(desk.folder / "bundle.tar.gz")
    desk.ok("export", *options, agent, bundle)
    where = "--workspace" if "--workspace" in options else "--cwd"
    done = other("import", bundle, where, str(other.work))
    assert (done.code, done.out.strip()) == (0, agent), done
    # An import says which files it wrote, and nothing else.
    said = "agentsdir: written: " if where == "--workspace" else "nothing"
    assert all(line.startswith(said) for line in done.err.splitlines()), done


def test_a_session_goes_on_in_another_home_and_folder(
    any_desk: Desk, desk_of: Callable[..., Desk]
) -> None:
    """The model is sent all of it there, and so it is when it goes on again."""
    agent = any_desk.new()
    any_desk.ok("send", agent, any_desk.ask("hello"))
    assert any_desk.send(agent, "tools").code == 0
    other = desk_of("other place é", any_desk.client)

    moved(any_desk, agent, other, "--bundle")
    assert other.ok("send", agent, other.ask("again")).out == "This is the next turn.\n"

    (request,) = any_desk.api.of("again")
    for text in ("Good day.", "Three tools ran.", "hello from the note"):
        assert text in "\n".join(request.texts), text
    (path,) = (other.store / "projects").glob(f"*/{other.native(agent)}.jsonl")
    assert path.read_bytes().startswith(_native(any_desk, agent).popitem()[1])
    level(other, agent)
    before = len(any_desk.api.of("again")[-1].texts)
    other.ok("send", agent, other.ask("again"))
    assert len(any_desk.api.of("again")[-1].texts) > before
    level(other, agent)
    assert [one["turn_id"] for one in other.of(agent, "block")].count(None) == 0


def test_a_session_goes_on_in_another_folder_of_the_same_home(any_desk: Desk) -> None:
    """Where it stands under its old folder; an older client is given a copy under the new one."""
    agent = any_desk.new()
    any_desk.ok("send", agent, any_desk.ask("hello"))
    any_desk.ok("export", "--bundle", agent, "moved.tar")
    any_desk.ok("rm", agent, "--yes")
    other = any_desk.work / "elsewhere"
    other.mkdir()
    any_desk.ok("import", "moved.tar", "--cwd", str(other))
    for _ in range(2):
        any_desk.ok("send", agent, any_desk.ask("again"))
        assert "Good day." in any_desk.api.of("again")[-1].texts
    assert any_desk.of(agent, "turn.error") == []
    any_desk.quiet()
    assert any_desk("validate", "--modes", str(any_desk.root)).out == ""
    found = any_desk.store.glob(f"projects/*/{any_desk.native(agent)}.jsonl")
    newest = max(found, key=lambda path: path.stat().st_mtime_ns).read_bytes()
    assert list(any_desk.stored_files(agent).values()) == [newest]


def test_an_agent_whose_folder_was_moved_goes_on_in_the_new_one(any_desk: Desk) -> None:
    """Another name for the project is no other conversation, wherever the client keeps it."""
    before, after = any_desk.work / "before", any_desk.work / "after"
    before.mkdir()
    agent = any_desk.new("--cwd", "before")
    any_desk.ok("send", agent, any_desk.ask("hello"))
    native = any_desk.native(agent)
    before.rename(after)
    assert any_desk("send", agent, any_desk.ask("again")).code == 13

    any_desk.ok("set", agent, "cwd=after")

    for _ in range(2):
        assert any_desk.ok("send", agent, any_desk.ask("again")).out == "This is the next turn.\n"
        assert "Good day." in any_desk.api.of("again")[-1].texts
    assert any_desk.native(agent) == native
    any_desk.quiet()
    assert any_desk("validate", "--modes", str(any_desk.root)).out == ""
    rows = [orjson.loads(line) for line in _newest(any_desk, native).splitlines()]
    assert {row["cwd"] for row in rows if "cwd" in row} == {str(before), str(after)}


def test_a_subagents_files_move_too(any_desk: Desk, desk_of: Callable[..., Desk]) -> None:
    """The side folder stands beside the transcript in its new place."""
    agent = any_desk.new()
    assert any_desk.send(agent, "delegate").code == 0
    other = desk_of("other", any_desk.client)

    moved(any_desk, agent, other, "--bundle")
    other.ok("send", agent, other.ask("again"))

    names = {path.rsplit("/", 1)[-1] for path in _native(other, agent)}
    assert {path.rsplit("/", 1)[-1] for path in _native(any_desk, agent)} <= names
    level(other, agent)


def test_the_files_it_worked_on_move_with_it(desk: Desk, desk_of: Callable[..., Desk]) -> None:
    """And the client works on them there."""
    agent = desk.new()
    assert desk.send(agent, "tools").code == 0
    other = desk_of("other")
    (other.work / "note.txt").unlink()

    moved(desk, agent, other, "--workspace")

    assert (other.work / "made.txt").read_text() == "made\n"
    assert other.send(agent, "tools").code == 0
    level(other, agent)


def test_a_fork_goes_on_and_leaves_its_parent(any_desk: Desk) -> None:
    """Each is sent what was said before, and nothing of the other."""
    agent = any_desk.new()
    any_desk.ok("send", agent, any_desk.ask("hello"))
    before = _native(any_desk, agent)

    fork = any_desk.ok("fork", agent).out.strip()
    any_desk.ok("send", fork, "Only for the fork. " + any_desk.ask("again"))

    assert _native(any_desk, agent) == before
    assert "Good day." in "\n".join(any_desk.api.of("again")[0].texts)
    any_desk.sound(fork)
    any_desk.ok("send", agent, any_desk.ask("again"))
    assert "Only for the fork." not in "\n".join(any_desk.api.of("again")[1].texts)
    any_desk.sound(agent)


def test_an_import_beside_the_original_goes_on_as_another(desk: Desk) -> None:
    """In the same root and the same store: another session, with the same history."""
    agent = desk.new()
    desk.ok("send", agent, desk.ask("hello"))
    desk.ok("export", "--bundle", agent, "../bundle.tar")
    before = _native(desk, agent)

    other = desk("import", "../bundle.tar").out.strip()
    desk.ok("send", other, desk.ask("again"))

    assert other != agent
    assert "Good day." in "\n".join(desk.api.of("again")[0].texts)
    assert _native(desk, agent) == before
    desk.sound(other)


def test_a_session_of_the_client_is_adopted_and_gone_on_with(any_desk: Desk) -> None:
    """It stays the client's own, in its own file; agent and client take turns in it."""
    native = str(uuid.uuid4())
    any_desk.by_hand(native, any_desk.ask("hello"), fresh=True)
    before = any_desk.transcript(native).read_bytes()

    agent = any_desk.ok("new", "--from", native[:8]).out.strip()
    assert any_desk.transcript(native).read_bytes() == before
    assert any_desk.said(agent) == ["Good day."]
    any_desk.ok("send", agent, any_desk.ask("again"))

    assert any_desk.transcript(native).read_bytes().startswith(before)
    assert "Good day." in "\n".join(any_desk.api.of("again")[0].texts)
    any_desk.sound(agent)
    any_desk.by_hand(native, any_desk.ask("again"))
    any_desk.ok("send", agent, any_desk.ask("again"))
    assert len(any_desk.api.of("again")) == 3
    any_desk.sound(agent)


def row(session: str, number: int, kind: str, content: Any, message: str = "") -> dict[str, Any]:
    """Return one row, as a client has written it elsewhere."""
    said = {"role": kind, "content": content}
    if kind == "assistant":
        usage = {"input_tokens": 1, "output_tokens": 1}
        said = {"id": message or f"msg_{number}", "type": "message", "model": "m", **said}
        said |= {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
    return {
        "parentUuid": f"{number - 1:08}-0000-4000-8000-000000000000" if number > 1 else None,
        "isSidechain": False,
        "type": kind,
        "message": said,
        "uuid": f"{number:08}-0000-4000-8000-000000000000",
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        "sessionId": session,
        "cwd": "/somewhere/else",
        "version": "2.1.98",
        "userType": "external",
    }


def call(name: str) -> dict[str, Any]:
    """Return a tool call."""
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "true"}}


@pytest.mark.parametrize("end", ["whole", "no-newline", "torn", "dangling", "torn-dangling"])
def test_a_transcript_of_any_end_goes_on(any_desk: Desk, end: str) -> None:
    """With all its rows, and with an answer to calls that never had one, in every client."""
    native = str(uuid.uuid4())
    rows = [
        row(native, 1, "user", "the first question"),
        row(native, 2, "assistant", [{"type": "text", "text": "the first answer"}]),
        row(native, 3, "user", "the second question"),
        row(native, 4, "assistant", [{"type": "text", "text": "the second answer"}], "m"),
    ]
    if "dangling" in end:
        rows += [row(native, 5, "assistant", [call("a")], "m")]
        rows += [row(native, 6, "assistant", [call("b")], "m")]
    data = b"".join(orjson.dumps(one) + b"\n" for one in rows)
    data = data[:-1] if end == "no-newline" else data
    data += b'{"parentUuid":"00000004-0000-4000-8000-000000000000","isSi' if "torn" in end else b""
    file = any_desk.folder / "elsewhere" / f"{native}.jsonl"
    file.parent.mkdir()
    file.write_bytes(data)
    made = any_desk("new", "--from", str(file), "--cwd", ".", "--model", "claude-opus-5-5")
    agent = made.out.strip()
    assert made.code == (3 if "torn" in end else 0)

    any_desk.ok("send", agent, any_desk.ask("again"))

    sent = "\n".join(any_desk.api.of("again")[0].texts)
    for text in ("first question", "first answer", "second question", "second answer"):
        assert text in sent
    assert sent.count(INTERRUPTED) == (2 if "dangling" in end else 0)
    assert any_desk.transcript(native).read_bytes().startswith(data)
    (stored,) = any_desk.stored_files(agent).values()
    assert stored == any_desk.transcript(native).read_bytes()
    assert any_desk("validate").out == ""


def test_a_profile_is_there_before_the_first_turn(desk: Desk) -> None:
    """The model reads its instructions; a file that was there stays, and is named."""
    profile = desk.root / "profiles" / "reviewer"
    (profile / "skills" / "look").mkdir(parents=True)
    (profile / "instructions.md").write_text("Always look twice.\n")
    skill = "---\nname: look\ndescription: how to look\n---\nLook.\n"
    (profile / "skills" / "look" / "SKILL.md").write_text(skill)
    agent = desk.new("--profile", "reviewer")
    place = desk.work / ".claude" / "skills" / "look"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("mine")

    done = desk.send(agent, "hello")

    assert (done.code, done.out) == (0, "Good day.\n")
    assert "SKILL.md is not of the profile reviewer; it was left" in done.err
    assert (place / "SKILL.md").read_text() == "mine"
    assert (desk.work / "CLAUDE.md").read_text() == "Always look twice.\n"
    (request,) = desk.api.of("hello")
    assert "Always look twice." in "\n".join(request.texts)
    (applied,) = desk.of(agent, "profile.applied")
    assert [one["path"] for one in applied["files"]] == ["CLAUDE.md"]
    assert applied["skipped"] == [".claude/skills/look/SKILL.md"]
    (desk.work / "CLAUDE.md").unlink()
    desk.ok("send", agent, desk.ask("again"))
    assert not Path(desk.work / "CLAUDE.md").exists()


def test_an_agent_goes_on_from_a_document(any_desk: Desk, desk_of: Callable[..., Desk]) -> None:
    """What `inspect --saved` prints is all that another user's client needs, of both agents."""
    goes_on_from_a_document(any_desk, desk_of("other place é", any_desk.client))
