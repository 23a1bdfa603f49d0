"""follow: a session printed while another process writes it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.formats.ids import short_hash

FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude"
HELLO = (FIXTURES / "hello-2.1.98.jsonl").read_bytes()
TOOLS = (FIXTURES / "tools-2.1.98.jsonl").read_bytes()
STDOUT = (FIXTURES / "stdout-subagent_fg-2.1.98.jsonl").read_bytes()
ONE = "00000001-0000-4000-8000-000000000001"
PATIENCE = 30


def last_of_each(rows: list[Any]) -> list[Any]:
    """Return what stands when the last line of an id stands, in the order of the first.

    Without tokens: for these alone no line is printed again.
    """
    return list({row["id"]: {**row, "usage": None} for row in rows}.values())


def test_a_pipe_gets_the_blocks_that_parsing_gives(shell: Any) -> None:
    """When it ends, which it does when nothing came for a while."""
    path = shell.cwd / "s.jsonl"
    path.write_bytes(TOOLS)
    rows = shell.ok("follow", "s.jsonl", "--until-idle", "0").rows
    assert last_of_each(rows) == last_of_each(shell.ok("parse", str(path)).rows)
    hidden = shell.ok("follow", "s.jsonl", "--until-idle", "0", "--hidden").rows
    assert last_of_each(hidden) == last_of_each(shell.ok("parse", "--hidden", str(path)).rows)


def test_a_terminal_gets_a_page_in_which_nothing_drives_it(shell: Any) -> None:
    """Each block once, with escapes shown."""
    evil = TOOLS.replace(b"Now a command.", b"\\u001b]0;owned\\u0007 \\u202e")
    (shell.cwd / "s.jsonl").write_bytes(evil)
    page = shell.ok("follow", "s.jsonl", "--until-idle", "0", tty=True).out
    assert "* Read" in page
    assert "-> 3 lines" in page
    assert page.count("All four tools ran.") == 1
    assert "\\x1b]0;owned\\x07 \\u202e" in page
    assert not set(page) & set("\x1b\x07\u202e")
    for flag in ("--events", "--json"):
        shown = shell.ok("follow", "s.jsonl", "--until-idle", "0", flag, tty=True).out
        assert not set(shown) & set("\x1b\x07\u202e")
        assert len(shown.splitlines()) > 5


def test_events_are_those_of_the_format(shell: Any) -> None:
    """And leave what parsing gives."""
    from agentsdir.formats.blocks import Reducer
    from agentsdir.schemas import check

    (shell.cwd / "s.jsonl").write_bytes(TOOLS)
    events = shell.ok("follow", "s.jsonl", "--until-idle", "0", "--events").rows
    assert all(check("stream-event", event) == [] for event in events)
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    assert reducer.blocks() == shell.ok("parse", str(shell.cwd / "s.jsonl")).rows


@pytest.mark.parametrize("name", ["era-0.61-resume.jsonl", "era-0.29-tools.json", "qwen.jsonl"])
def test_a_chat_of_gemini_gives_the_events_of_the_format(shell: Any, name: str) -> None:
    """Which leave what parsing gives, in whichever way the client writes its chats."""
    from agentsdir.formats.blocks import Reducer
    from agentsdir.schemas import check

    path = shell.cwd / name
    shutil.copy(FIXTURES.parent / "gemini" / name, path)
    events = shell.ok("follow", name, "--until-idle", "0", "--events").rows
    assert [event for event in events if check("stream-event", event)] == []
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    wanted = shell.ok("parse", str(path), "--view", "all").rows
    assert sorted(map(orjson.dumps, reducer.blocks())) == sorted(map(orjson.dumps, wanted))


def test_damage_is_named_and_exits_3(shell: Any) -> None:
    """Once, and the rest is printed."""
    (shell.cwd / "s.jsonl").write_bytes(HELLO + b"\0\0\n" + HELLO[:50])
    done = shell("follow", "s.jsonl", "--until-idle", "0")
    assert (done.code, done.err.count("\n")) == (3, 2)
    assert done.rows


def test_a_clients_output_is_followed_from_a_pipe(shell: Any) -> None:
    """It ends with the client."""
    rows = last_of_each(shell.ok("follow", "-", stdin=STDOUT).rows)
    said = [row["content"] for row in rows if row["type"] == "assistant_text"]
    assert said
    assert {row["status"] for row in rows if row["type"] == "subagent"} == {"success"}
    page = shell.ok("follow", "-", stdin=STDOUT, tty=True).out
    assert all(words in page for words in said)
    assert shell("follow", "-", "--hidden").code == 2
    assert shell("follow", "-", "--until-idle", "1").code == 2


@pytest.mark.parametrize("noise", [b"", b"a warning before anything else\n"])
def test_the_output_of_gemini_is_recognised_by_its_beginning(shell: Any, noise: bytes) -> None:
    """What comes before is held back until then, and is a finding all the same."""
    output = (FIXTURES.parent / "gemini" / "stream-tools.stdout").read_bytes()
    done = shell("follow", "-", stdin=noise + output)
    assert done.code == (3 if noise else 0)
    rows = last_of_each(done.rows)
    assert {row["status"] for row in rows if row["type"] == "tool_use"} == {"success"}
    assert rows[-1]["subtype"] == "session_end"


UNKNOWN = {
    "text": b"nothing that\nanybody knows\n",
    "a JSON object": b'{"level":"info","msg":"started"}\n',
    "many of them": b'{"level":"info","msg":"started"}\n' * 1000,
    "records of a log": b'{"seq":1,"event":"turn.start","data":{}}\n',
    "other JSON": b"[1,2]\n",
    "half an event": b'{"type":"text_delta","blockId":"b"',
    "blank lines": b"\n\n",
    "nothing": b"",
}


@pytest.mark.parametrize("form", [(), ("--events",)])
@pytest.mark.parametrize("data", UNKNOWN.values(), ids=UNKNOWN)
def test_output_that_no_reader_knows_is_refused(
    shell: Any, data: bytes, form: tuple[str, ...]
) -> None:
    """As `parse` refuses it; a pipeline hears of it by the exit code."""
    done = shell("follow", "-", *form, "--json", stdin=data)
    assert (done.code, done.out) == (12, "")
    assert done.error["kind"] == ("not-a-transcript" if data.strip() else "empty-file")


@pytest.mark.parametrize("script", ["tools.jsonl", "thinking.jsonl", "subagent.jsonl"])
def test_our_own_streams_are_followed(shell: Any, script: str) -> None:
    """`send --events` and `replay --events` in a pipe: the blocks, and the events as they are."""
    agent = shell.script(script)
    sent = shell.ok("send", agent, "--events", "hi")
    blocks = {
        row["id"]: row for row in last_of_each(shell.ok("parse", "-", stdin=sent.out.encode()).rows)
    }
    for printed in (sent.out, shell.ok("replay", agent, "--events").out):
        followed = shell.ok("follow", "-", stdin=printed.encode())
        found = {row["id"]: {**row, "source": None} for row in last_of_each(followed.rows)}
        assert found == {key: {**block, "source": None} for key, block in blocks.items()}
        again = shell.ok("follow", "-", "--events", stdin=printed.encode())
        assert again.out == printed
    page = shell.ok("follow", "-", stdin=sent.out.encode(), tty=True).out
    assert "hi" in page


def test_a_stream_that_was_cut_gives_what_came(shell: Any) -> None:
    """Deltas without their end are a block; a line that is no event is named."""
    sent = shell.ok("send", shell.script("tools.jsonl"), "--events", "hi").out.encode()
    lines = sent.splitlines(keepends=True)
    begun = next(at for at, line in enumerate(lines) if b'"text_delta"' in line)
    done = shell("follow", "-", stdin=b"".join(lines[: begun + 1]))
    assert done.code == 0
    assert done.rows[-1]["content"] == orjson.loads(lines[begun])["delta"]
    strange = b'{"type":"mood","conversationId":"main"}\n'
    done = shell("follow", "-", stdin=strange.join([b"", *lines]))
    assert len(done.rows) == len(shell.ok("follow", "-", stdin=sent).rows)
    assert "row 'mood': unknown" in done.err
    torn = shell("follow", "-", stdin=sent + b'{"type":"text_delta","blockId"')
    assert torn.code == 3


def test_what_is_held_back_has_an_end(shell: Any) -> None:
    """No more is looked at than would be of a file; blank lines are no lines."""
    known = (FIXTURES.parent / "gemini" / "stream-tools.stdout").read_bytes()
    few, many = b"?\n" * 63, b"?\n" * 64
    assert shell("follow", "-", stdin=b"\n" * 2000 + few + known).rows
    assert shell("follow", "-", stdin=many + known).code == 12


def put(shell: Any, data: bytes) -> Path:
    """Put a session into the client's own store."""
    path: Path = shell.home / ".claude" / "projects" / "-w" / f"{ONE}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def test_a_native_session_is_named_by_its_id(shell: Any) -> None:
    """Whole or by its beginning."""
    path = put(shell, HELLO)
    for name in (ONE, ONE[:8]):
        rows = shell.ok("follow", name, "--until-idle", "0").rows
        assert last_of_each(rows) == last_of_each(shell.ok("parse", str(path)).rows)


REFUSED = {
    "no such session": (["deadbeef"], 10, "no-such-session"),
    "no such agent": (["nobody"], 10, "no-such-agent"),
    "a folder": (["."], 2, "usage"),
    "no client's": (["echo.jsonl"], 2, "cannot-follow"),
    "no transcript": (["notes.jsonl"], 12, "not-a-transcript"),
}


@pytest.mark.parametrize(("words", "code", "kind"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_followed_is_refused(
    shell: Any, words: list[str], code: int, kind: str
) -> None:
    """Rather than waited for."""
    agent = shell.new()
    shell.ok("send", agent, "hi")
    shutil.copy(shell.transcript(agent), shell.cwd / "echo.jsonl")
    (shell.cwd / "notes.jsonl").write_text('{"a":1}\n')
    done = shell("follow", *words, "--until-idle", "0", "--json")
    assert (done.code, done.error["kind"]) == (code, kind)


def test_an_agent_of_a_provider_that_writes_no_such_sessions_cannot_be_followed(shell: Any) -> None:
    """`replay` shows it."""
    done = shell("follow", shell.new(), "--json")
    assert (done.code, done.error["kind"]) == (2, "cannot-follow")


def test_a_file_that_is_not_there_yet_is_waited_for(shell: Any) -> None:
    """With a word on stderr, as the path may be mistyped."""
    done = shell("follow", "late/s.jsonl", "--until-idle", "0")
    assert (done.code, done.out) == (0, "")
    assert "not there yet" in done.err


@pytest.mark.parametrize("name", ["s.jsonl", "s.json", "deep/s"])
def test_whose_a_file_is_shows_when_it_is_there(shell: Any, following: Any, name: str) -> None:
    """Its name says nothing, and neither does the first half of its first line."""
    path = shell.cwd / name
    path.parent.mkdir(exist_ok=True)
    process = following(name)
    assert b"not there yet" in process.stderr.readline()
    rows = HELLO.splitlines(keepends=True)
    for piece in (rows[0][:10], rows[0][10:], *rows[1:]):
        with path.open("ab") as file:
            file.write(piece)
    assert read_line(process)["id"] == shell.ok("parse", str(path)).rows[0]["id"]


def test_a_first_line_that_is_longer_than_what_tells_whose_it_is_is_read(
    shell: Any, following: Any
) -> None:
    """A prompt may be as long as its user likes."""
    process = following("s.jsonl")
    assert b"not there yet" in process.stderr.readline()
    first = next(row for row in HELLO.splitlines(keepends=True) if b'"type":"user"' in row)
    long = orjson.loads(first)
    long["message"]["content"] = "x" * 100_000
    (shell.cwd / "s.jsonl").write_bytes(orjson.dumps(long) + b"\n")
    assert len(read_line(process)["content"]) == 100_000


@pytest.fixture
def following(shell: Any) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a way to start `follow` in a process of its own; what still runs is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "agentsdir.cli.main", "follow", *arguments]
        started.append(
            subprocess.Popen(
                command, cwd=shell.cwd, env=shell.environment(), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        )  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[bytes]) -> Any:
    """Return the next line as JSON."""
    assert process.stdout is not None
    return orjson.loads(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_blocks_come_while_the_file_grows_until_a_signal_comes(
    shell: Any, following: Any, number: signal.Signals
) -> None:
    """Each line is out before the next one is written. The end is the signal's, and quiet."""
    path = shell.cwd / "s.jsonl"
    path.touch()
    process = following("s.jsonl")
    rows = HELLO.splitlines(keepends=True)
    wanted = shell.ok("parse", "-", stdin=HELLO).rows
    for row in rows:
        with path.open("ab") as file:
            file.write(row)
        if wanted and orjson.loads(row).get("uuid", "x") in wanted[0]["id"]:
            assert read_line(process)["id"] == wanted.pop(0)["id"]
    assert wanted == []
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (128 + number, b"", b"")


def test_output_is_followed_line_by_line(shell: Any, following: Any) -> None:
    """Nothing waits for the client's end."""
    process = following("-")
    assert process.stdin is not None
    for line in STDOUT.splitlines(keepends=True)[:2]:
        process.stdin.write(line)
    process.stdin.flush()
    assert read_line(process)["type"] == "system"
    process.stdin.close()
    process.stdin = None
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    del shell


def test_a_reader_that_goes_away_ends_it(shell: Any, following: Any) -> None:
    """At the next line that it would print."""
    path = shell.cwd / "s.jsonl"
    path.write_bytes(HELLO)
    process = following("s.jsonl")
    read_line(process)
    process.stdout.close()
    process.stdout = None
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        with path.open("ab") as file:
            file.write(TOOLS)
        os.sched_yield()
        path.write_bytes(HELLO)
    assert process.returncode == 141


def as_claudes(shell: Any) -> str:
    """Return an agent whose log says that Claude's client ran it, as session `ONE`."""
    agent: str = shell.new()
    folder = shell.folder(agent)
    first = orjson.loads((folder / "events.jsonl").read_bytes())
    first["data"].update(
        provider="claude",
        native={"architecture": "claude-agent-sdk", "id": ONE, "cwd": str(shell.cwd)},
    )
    stored = {"path": f"w/{ONE}.jsonl", "role": "main", "size": len(TOOLS), "sha256": "0" * 64}
    line = orjson.dumps(first)
    second = {
        **first, "seq": 2, "event": "transcript.synced", "data": {"files": [stored]},
        "prev": short_hash(line),
    }  # fmt: skip
    (folder / "events.jsonl").write_bytes(line + b"\n" + orjson.dumps(second) + b"\n")
    (folder / "state.json").unlink()
    return agent


def test_an_agent_is_followed_in_its_clients_store_else_in_the_stored_transcript(
    shell: Any,
) -> None:
    """The client writes the one; the other is what was saved of it."""
    agent = as_claudes(shell)
    stored = shell.folder(agent) / "transcripts" / "w" / f"{ONE}.jsonl"
    stored.parent.mkdir(parents=True)
    stored.write_bytes(TOOLS)
    follow = ("follow", agent, "--until-idle", "0")
    assert last_of_each(shell.ok(*follow).rows) == last_of_each(shell.ok("parse", str(stored)).rows)
    native = put(shell, HELLO)
    assert last_of_each(shell.ok(*follow).rows) == last_of_each(shell.ok("parse", str(native)).rows)


def test_an_agent_cannot_lead_out_of_its_folder(shell: Any) -> None:
    """A link among its transcripts is refused."""
    agent = as_claudes(shell)
    transcripts = shell.folder(agent) / "transcripts"
    transcripts.mkdir(exist_ok=True)
    (transcripts / "w").symlink_to(shell.home)
    done = shell("follow", agent, "--until-idle", "0", "--json")
    assert (done.code, done.error["kind"]) == (12, "unsafe-path")


def test_a_file_is_followed_by_itself_and_an_id_with_its_subagents(shell: Any) -> None:
    """As parse reads them: nothing more, and nothing less."""
    project = shell.home / ".claude" / "projects" / "-w"
    shutil.copytree(FIXTURES / "side-agents-2.1.98", project)
    main = str(project / f"{ONE}.jsonl")
    threads = {}
    for word in (main, ONE):
        followed = last_of_each(shell.ok("follow", word, "--until-idle", "0").rows)
        parsed = last_of_each(shell.ok("parse", word).rows)
        assert {row["id"]: row for row in followed} == {row["id"]: row for row in parsed}
        threads[word] = {row["conversationId"] for row in followed}
    assert threads[main] == {"main"}
    assert len(threads[ONE]) > 1


def test_a_branch_that_was_left_before_it_was_read_is_not_counted_above(shell: Any) -> None:
    """Nothing of it was printed, so nothing that stands above was replaced."""
    recording = FIXTURES.parent / "interactive" / "claude-2.1.98" / "tty_rewind"
    (main,) = (path for path in recording.rglob("*.jsonl") if "projects" in path.parts)
    page = shell.ok("follow", str(main), "--until-idle", "0", tty=True).out
    assert "> " in page
    assert "were replaced" not in page
