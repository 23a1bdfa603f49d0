"""Following gives what parsing gives, however the client's writes and our looks fall."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from claude_support import SESSION, SINGLE, call, lines, result, said, user
from hypothesis import given, settings
from hypothesis import strategies as st
from watching import Blocks, Watching, Writer, same

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.sides import StoreReader
from agentsdir.formats.reading.sink import ParseSink

OTHER = "00000002-0000-4000-8000-000000000002"
_MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None


def reader() -> StoreReader:
    """Return the reader under test."""
    assert isinstance(ARCHITECTURE.reader, StoreReader)
    return ARCHITECTURE.reader


def parsed(main: Path) -> Blocks:
    """Return what parsing the session gives, by conversation."""
    sink = ParseSink(hidden=True)
    reader().parse_transcripts(reader().files(main), sink)
    found: Blocks = {}
    for block in sink.blocks("all"):
        found.setdefault(block["conversationId"], []).append(block)
    return found


class Watched(Watching):
    """A session of Claude Code."""

    def __init__(self, main: Path, *, hidden: bool = True) -> None:
        super().__init__(main, reader().follow(main, hidden=hidden))


def laid_out(fixture: Path) -> tuple[Path, dict[Path, bytes]]:
    """Return a session's main file and the contents of all its files, by relative path."""
    if fixture.is_file():
        return Path(fixture.name), {Path(fixture.name): fixture.read_bytes()}
    files = {
        path.relative_to(fixture): path.read_bytes()
        for path in sorted(fixture.rglob("*"))
        if path.is_file()
        and path.name.endswith((".jsonl", ".meta.json"))
        and not path.name.endswith(".blocks.jsonl")
    }
    main = next(
        path for path in files if len(path.parts) == 1 and not path.name.startswith("agent-")
    )
    return main, files


every_fixture = pytest.mark.parametrize("fixture", SINGLE, ids=lambda path: path.name)


def follow_by_chance(fixture: Path, data: Any, deeds: list[str], *, ordered: bool) -> None:
    """Let the files change and be looked at by chance; compare with parsing at the end."""
    main, contents = laid_out(fixture)
    with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
        folder = Path(name)
        watched, writer = Watched(folder / main), Writer(folder, contents, data)
        for _ in range(data.draw(st.integers(1, 12), label="steps")):
            writer.step(deeds)
            if data.draw(st.booleans(), label="look"):
                watched.poll()
        writer.rest()
        same(watched.end(), parsed(folder / main), ordered=ordered)


@every_fixture
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_chunking_of_the_writes_gives_what_parsing_gives(fixture: Path, data: Any) -> None:
    """Files grow in turns, by any number of bytes: same blocks, same order."""
    follow_by_chance(fixture, data, ["grow"], ordered=True)


@every_fixture
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_rewriting_gives_what_parsing_gives(fixture: Path, data: Any) -> None:
    """Files are cut off and written again, or replaced by ones that lack a row: same blocks."""
    follow_by_chance(fixture, data, ["grow", "grow", "grow", "cut", "replace"], ordered=False)


TALK = [user("u1", None, "one"), said("a1", "u1", {"type": "text", "text": "first"})]
MORE = [user("u2", "a1", "two"), said("a2", "u2", {"type": "text", "text": "second"})]
CHILD = {**user("c1", None, "look"), "isSidechain": True, "agentId": "abc1"}


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """Return where a session's main transcript will be: in a project's folder."""
    return tmp_path / "projects" / "-w" / f"{SESSION}.jsonl"


@pytest.fixture
def watched(main: Path) -> Watched:
    """Return a follower of a session that is there: a prompt and its answer, both told."""
    main.parent.mkdir(parents=True)
    main.write_bytes(lines(*TALK))
    watched = Watched(main)
    watched.poll()
    return watched


def append(path: Path, *rows: dict[str, Any]) -> None:
    """Write rows to the end of a file."""
    with path.open("ab") as file:
        file.write(lines(*rows))


def test_a_file_may_come_late_and_its_folder_too(main: Path) -> None:
    """Until then there is nothing to tell, and nothing wrong."""
    watched = Watched(main)
    assert watched.poll() == []
    main.parent.mkdir(parents=True)
    assert watched.poll() == []
    main.write_bytes(lines(*TALK))
    assert [event["type"] for event in watched.poll()] == ["block_complete"] * 2
    assert watched.poll() == []


def test_a_line_without_its_end_is_waited_for(watched: Watched) -> None:
    """A block comes when its line is whole, and the torn end is no finding until there is one."""
    line = lines(*MORE)
    for at in range(0, len(line), 100):
        with watched.main.open("ab") as file:
            file.write(line[at : at + 100])
        watched.poll()
        assert watched.follower.findings == []
    assert watched.texts() == ["one", "first", "two", "second"]
    with watched.main.open("ab") as file:
        file.write(b'{"type":"user","mess')
    watched.end()
    assert [finding.id for finding in watched.follower.findings] == ["torn-tail"]


def test_a_row_that_is_taken_back_leaves_a_superseded_block_and_nothing_is_repeated(
    watched: Watched,
) -> None:
    """As the client does with the answer of a stream that broke: it writes the end anew."""
    watched.main.write_bytes(lines(TALK[0], *MORE))
    events = watched.poll()
    told = [(e["type"], e["blockId"], sorted(e.get("updates", ()))) for e in events]
    assert told == [
        ("block_complete", "u2:0", []),
        ("block_complete", "a2:0", []),
        ("block_update", "a1:0", ["superseded"]),
    ]
    assert watched.texts() == ["one", "two", "second"]


def test_a_file_that_is_cut_off_and_written_again_is_told_once_more_only_where_it_differs(
    watched: Watched,
) -> None:
    """Between the two, what was cut off does not stand; after them it does again."""
    whole = watched.main.read_bytes()
    watched.main.write_bytes(b"")
    watched.poll()
    assert watched.texts() == []
    watched.main.write_bytes(whole)
    events = watched.poll()
    assert {event["type"] for event in events} == {"block_update"}
    assert {frozenset(event["updates"].items()) for event in events} == {
        frozenset({("superseded", False)})
    }
    assert watched.texts() == ["one", "first"]


def test_rows_that_move_are_told_to_have_moved(watched: Watched) -> None:
    """A row before them went: their `source` changes, and nothing else."""
    append(watched.main, *MORE)
    watched.poll()
    watched.main.write_bytes(lines(TALK[0], *MORE))
    moved = [e for e in watched.poll() if "source" in e.get("updates", ())]
    assert [event["blockId"] for event in moved] == ["u2:0", "a2:0"]
    same(watched.end(), parsed(watched.main))


@pytest.mark.parametrize("what", ["file", "folder", "to another project"])
def test_what_is_renamed_is_followed_there(watched: Watched, what: str) -> None:
    """And the new place is where subagents are looked for. Nothing is told twice."""
    old = watched.main
    if what == "file":
        new = old.with_name("renamed.jsonl")
        old.rename(new)
    elif what == "folder":
        new = old.parent.with_name("-moved") / old.name
        old.parent.rename(new.parent)
    else:
        new = old.parent.with_name("-other") / old.name
        new.parent.mkdir()
        old.rename(new)
    assert watched.poll() == []
    append(new, *MORE)
    assert [event["blockId"] for event in watched.poll()] == ["u2:0", "a2:0"]
    side = new.with_name(SESSION) / "subagents"
    side.mkdir(parents=True)
    (side / "agent-abc1.jsonl").write_bytes(lines(CHILD))
    assert "abc1" in {event["conversationId"] for event in watched.poll()}


def test_a_deleted_file_unsays_nothing_and_may_come_back(watched: Watched) -> None:
    """What was told was said. A new file in its place is the session then."""
    watched.main.unlink()
    assert watched.poll() == []
    assert watched.texts() == ["one", "first"]
    watched.main.write_bytes(lines(*TALK, *MORE))
    assert [event["blockId"] for event in watched.poll()] == ["u2:0", "a2:0"]


@pytest.mark.parametrize(
    "place", [f"{SESSION}/subagents", f"{SESSION}/subagents/workflows/r1", "."]
)
def test_subagents_are_followed_in_threads_of_their_own(watched: Watched, place: str) -> None:
    """From when their files appear, in every layout; not those of other sessions."""
    append(watched.main, said("a3", "a1", call("t1", "Agent", prompt="look")))
    watched.poll()
    child = watched.main.parent / place / "agent-abc1.jsonl"
    child.parent.mkdir(parents=True, exist_ok=True)
    stranger = {**CHILD, "sessionId": OTHER, "agentId": "abc2"}
    (watched.main.parent / "agent-abc2.jsonl").write_bytes(lines(stranger))
    child.write_bytes(lines(CHILD)[:-20])
    assert watched.poll() == []
    child.write_bytes(lines(CHILD))
    assert {event["conversationId"] for event in watched.poll()} >= {"abc1"}
    append(
        child,
        {
            **said("c2", "c1", {"type": "text", "text": "seen"}),
            "isSidechain": True,
            "agentId": "abc1",
        },
    )
    append(watched.main, user("u9", "a3", [result("t1")], toolUseResult={"agentId": "abc1"}))
    watched.poll()
    assert watched.reducer.blocks("abc1")[-1]["content"] == "seen"
    assert watched.reducer.blocks("abc2") == []
    (block,) = [one for one in watched.reducer.blocks() if one["type"] == "subagent"]
    assert (block["status"], block["subagentId"]) == ("success", "abc1")
    same(watched.end(), parsed(watched.main))


def test_a_sidecar_that_comes_late_names_its_subagent(watched: Watched) -> None:
    """The client writes it beside the transcript, and changes it when the subagent is done."""
    child = watched.main.with_suffix("") / "subagents" / "agent-abc1.jsonl"
    child.parent.mkdir(parents=True)
    child.write_bytes(lines(CHILD))
    watched.poll()
    child.with_suffix(".meta.json").write_text('{"agentType":"scout"}')
    (event,) = watched.poll()
    assert event["updates"]["message"] == "Subagent scout started"


def test_a_subagents_file_can_be_followed_by_itself(tmp_path: Path) -> None:
    """As it can be parsed by itself."""
    child = tmp_path / "agent-abc1.jsonl"
    child.write_bytes(lines(CHILD))
    given = Watched(child).end()
    assert set(given) == {"abc1"}
    same(given, parsed(child))


def test_a_long_session_is_told_in_pieces_and_not_gathered(main: Path) -> None:
    """The first events come long before the last row is read."""
    main.parent.mkdir(parents=True)
    rows = [user(f"u{n}", f"u{n - 1}" if n else None, "x" * 1000) for n in range(5000)]
    main.write_bytes(lines(*rows))
    events = reader().follow(main).poll()
    before = _read_so_far()
    next(events)
    assert _read_so_far() - before < 3 * 1024 * 1024 < main.stat().st_size


def _read_so_far() -> int:
    counts = Path("/proc/self/io")
    if not counts.exists():
        pytest.skip("the system does not count what a process reads")
    return int(counts.read_text().split("rchar:")[1].split()[0])
