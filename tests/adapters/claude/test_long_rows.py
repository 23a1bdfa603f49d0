"""Rows longer than 64 KiB at the ends of a file: what it is, and what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from claude_support import SESSION, lines, said, user
from watching import Watching, same

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.claude.discover import FirstRows
from agentsdir.adapters.claude.moving import adoptable
from agentsdir.adapters.claude.store import read_list_entry
from agentsdir.adapters.protocol import StoreReader
from agentsdir.engine.follow import live_translator
from agentsdir.engine.parse import owner_of, recognises
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import HEAD, Source

LONG = "x" * 2 * HEAD
SNAPSHOT = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"of": LONG}}
PICTURE = {"type": "image", "source": {"type": "base64", "data": "A" * 5 * 1024 * 1024}}
HOOK = f"<session-start-hook>{LONG}</session-start-hook>"
ASKED = user("u1", None, "fix it", cwd="/w", gitBranch="mine")
ANSWER = said("a1", "u1", "done") | {"cwd": "/w/deeper", "gitBranch": "mine"}
LONG_ANSWER = said("a1", "u1", LONG) | {"cwd": "/w/deeper", "gitBranch": "mine"}
TITLE = {"type": "ai-title", "aiTitle": "fix it", "sessionId": SESSION}
META = [user(f"h{n}", None, "x" * 900, isMeta=True, cwd="/w") for n in range(200)]
COMMAND = user("c1", None, "<command-name>/model</command-name>", cwd="/w")
SUMMARY = {"type": "summary", "summary": "fix it", "leafUuid": "l"}
WITH_PICTURE = user("u1", None, ["fix it", PICTURE], cwd="/w", gitBranch="mine")
WITH_PICTURE["message"]["content"][0] = {"type": "text", "text": "fix it"}
OUTPUT = {"type": "assistant", "session_id": SESSION, "message": ANSWER["message"]}

FILES: dict[str, list[dict[str, Any]]] = {
    "a picture": [WITH_PICTURE, ANSWER],
    "a picture, and a title at the end": [WITH_PICTURE, ANSWER, TITLE],
    "a picture behind a command": [COMMAND, WITH_PICTURE, ANSWER],
    "a snapshot": [SNAPSHOT, ASKED, ANSWER],
    "two snapshots": [SNAPSHOT, SNAPSHOT, ASKED, ANSWER],
    "a snapshot, and a long last row": [SNAPSHOT, ASKED, LONG_ANSWER],
    "a summary, a snapshot, and a long last row": [SUMMARY, SNAPSHOT, ASKED, LONG_ANSWER],
    "what a hook said": [user("h1", None, HOOK, isMeta=True, cwd="/w"), ASKED, ANSWER],
    "many rows of hooks": [*META, ASKED, ANSWER],
    "the only row": [WITH_PICTURE],
}
files = pytest.mark.parametrize("rows", FILES.values(), ids=FILES)


def reader() -> StoreReader:
    """Return the reader under test."""
    assert isinstance(ARCHITECTURE.reader, StoreReader)
    return ARCHITECTURE.reader


def put(folder: Path, *rows: dict[str, Any], name: str = SESSION) -> Path:
    """Write a file into a project's folder of a store."""
    path = folder / "projects" / "-w" / f"{name}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(lines(*rows))
    return path


@files
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "BOM"])
def test_a_session_is_listed_with_its_title_and_its_folder(
    tmp_path: Path, rows: list[dict[str, Any]], mark: bytes
) -> None:
    """The first prompt and folder, the last branch, and when it began."""
    main = put(tmp_path, *rows)
    main.write_bytes(mark + main.read_bytes())
    refused: list[OSError] = []
    (listed,) = reader().sessions(tmp_path, refused.append)
    assert (listed.title, listed.cwd, listed.branch) == ("fix it", "/w", "mine")
    assert listed.created == ASKED["timestamp"]
    assert refused == []


@files
@pytest.mark.parametrize("name", [SESSION, "renamed"])
def test_a_session_is_known_and_can_be_gone_on_with(
    tmp_path: Path, rows: list[dict[str, Any]], name: str
) -> None:
    """Its content tells whose it is, its rows which session it is and where."""
    main = put(tmp_path, *rows, name=name)
    source = Source(str(main), path=main)
    assert owner_of(source, ["gemini", "claude"]) == "claude"
    assert recognises("claude", source)
    assert not recognises("gemini", source)
    session = adoptable(main)
    assert (session.id, session.cwd, session.title) == (SESSION, "/w", "fix it")


def test_a_subagents_file_is_one_behind_a_long_row(tmp_path: Path) -> None:
    """No list shows it, and it is read as a child."""
    child = {**ASKED, "isSidechain": True, "agentId": "a1"}
    main = put(tmp_path, SNAPSHOT, child)
    assert list(reader().sessions(tmp_path, lambda error: None)) == []
    (files,) = reader().discover([Source(str(main), path=main)])
    assert files.transcripts[0].role == "subagent"


def test_a_subagent_whose_first_row_is_long_is_followed_with_its_session(tmp_path: Path) -> None:
    """At once, and not only at the end."""
    main = put(tmp_path, ASKED, ANSWER)
    child = main.with_suffix("") / "subagents" / "agent-a1.jsonl"
    child.parent.mkdir(parents=True)
    whole = lines(user("k1", None, LONG, isSidechain=True, agentId="a1"))
    child.write_bytes(whole[:-1000])
    watched = Watching(main, reader().follow(main, hidden=True))
    watched.poll()
    assert set(watched.reducer.conversations) == {"main"}
    child.write_bytes(whole)
    watched.poll()
    assert set(watched.reducer.conversations) == {"main", "a1"}
    sink = ParseSink(hidden=True)
    reader().parse_transcripts(reader().files(main), sink)
    given: dict[str, list[Any]] = {}
    for block in sink.blocks("all"):
        given.setdefault(block["conversationId"], []).append(block)
    same(watched.end(), given)


def test_output_whose_first_line_is_long_is_known() -> None:
    """A hook may print much before the client says anything."""
    hook = {"type": "system", "subtype": "hook_response", "output": LONG, "session_id": SESSION}
    translator = live_translator()
    told = [*translator.line(lines(hook)), *translator.line(lines(OUTPUT)), *translator.end()]
    assert "done" in str(told)


def test_a_file_that_says_nothing_in_64_mib_is_named(tmp_path: Path) -> None:
    """It may say something behind them: so it is not left out in silence."""
    main = put(tmp_path, {"type": "mode", "sessionId": SESSION})
    with main.open("r+b") as file:
        file.truncate(65 * 1024 * 1024)
    with pytest.raises(OSError, match="first 64 MiB") as caught:
        read_list_entry(main)
    assert caught.value.filename == str(main)
    refused: list[OSError] = []
    assert list(reader().sessions(tmp_path, refused.append)) == []
    assert len(refused) == 1
    assert adoptable(main).title == ""


def test_no_more_than_64_kib_is_read_of_an_ordinary_beginning() -> None:
    """A row of the conversation stands whole in them."""
    asked: list[int] = []
    data = lines(ASKED, *META)

    def read(size: int) -> bytes:
        asked.append(size)
        return data[:size]

    assert next(iter(FirstRows(read))) == ASKED
    assert asked == [HEAD]
