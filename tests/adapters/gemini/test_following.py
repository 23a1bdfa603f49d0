"""Following gives what parsing gives, however the client's writes and our looks fall."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import watching
from gemini_reading import FIXTURES, is_record
from hypothesis import given, settings
from hypothesis import strategies as st
from watching import Blocks, Watching, live, same

from agentsdir.adapters.gemini.following.follow import SessionFollower
from agentsdir.adapters.gemini.reader import GeminiReader
from agentsdir.formats.reading.sink import ParseSink
from agentsdir.formats.reading.source import Source

_MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
SESSION = "11111111-2222-4333-8444-555555555555"
CHILD = "99999999-2222-4333-8444-555555555555"
NAME = "session-2026-01-01T00-00-11111111"
HEADER = {"sessionId": SESSION, "projectHash": "h", "startTime": "2026-01-01T00:00:00.000Z"}
TOKENS = {"input": 10, "output": 2, "cached": 4, "thoughts": 1, "tool": 0, "total": 13}

SINGLE = sorted(
    path for path in FIXTURES.iterdir()
    if (path.is_dir() and path.name.startswith("subagent-"))
    or (path.suffix in (".json", ".jsonl")
        and not path.name.endswith((".blocks.jsonl", ".all.jsonl")))
)  # fmt: skip


def parsed(main: Path) -> Blocks:
    """Return what parsing the session gives, by conversation."""
    reader = GeminiReader()
    sources = [Source(str(path), path=path) for path in sorted(main.parent.rglob("*.json*"))]
    found: Blocks = {}
    for session in reader.discover(sources):
        if session.transcripts[0].source.name == str(main):
            sink = ParseSink(hidden=True)
            reader.parse_transcripts(session, sink)
            for block in sink.blocks("all"):
                found.setdefault(block["conversationId"], []).append(block)
    return found


class Watched(Watching):
    """A session of Gemini CLI."""

    def __init__(self, main: Path, *, hidden: bool = True) -> None:
        super().__init__(main, SessionFollower(main, hidden=hidden))

    def poll(self) -> list[dict[str, Any]]:
        """Look once; return what was told but of headers and the like."""
        return [e for e in super().poll() if "block" not in e or not is_record(e["block"])]

    def told(self) -> list[tuple[str, str, list[str]]]:
        """Look once; return what was told in short, but for where merely bytes moved."""
        found = [
            (e["type"].removeprefix("block_"), e.get("blockId", ""), sorted(e.get("updates", ())))
            for e in self.poll()
        ]
        return [one for one in found if one[2] != ["source"]]


def laid_out(fixture: Path) -> tuple[Path, dict[Path, bytes]]:
    """Return a session's main file and the contents of all its files, by relative path."""
    if fixture.is_file():
        return Path(fixture.name), {Path(fixture.name): fixture.read_bytes()}
    chats = fixture / "chats"
    files = {path.relative_to(chats): path.read_bytes() for path in sorted(chats.rglob("*.json*"))}
    return min(files, key=lambda path: (len(path.parts), path)), files


every_fixture = pytest.mark.parametrize("fixture", SINGLE, ids=lambda path: path.name)


class Writer(watching.Writer):
    """Writes logs piece by piece, and documents anew."""

    def __init__(self, folder: Path, contents: dict[Path, bytes], data: Any) -> None:
        super().__init__(folder, contents, data)
        self._whole = dict(contents)

    def grow(self, path: Path) -> None:
        """Append to a log; write a document anew."""
        if path.suffix == ".json":
            self._rewrite(path)
        else:
            super().grow(path)

    def rest(self) -> None:
        """Write what is left, and documents to their end."""
        super().rest()
        for path, data in self._whole.items():
            if path.suffix == ".json":
                (self._folder / path).write_bytes(data)

    def _rewrite(self, path: Path) -> None:
        """Write a document anew with some of its messages, and maybe not to its end."""
        try:
            document = json.loads(self._whole[path])
            messages = document["messages"]
        except (ValueError, TypeError, KeyError):
            text = self._whole[path]
        else:
            count = self._draw(st.integers(0, len(messages)), label="messages")
            document["messages"] = messages[:count]
            text = json.dumps(document, indent=2).encode()
        size = self._draw(st.integers(0, len(text)) | st.just(len(text)), label="bytes")
        (self._folder / path).write_bytes(text[:size])


def follow_by_chance(fixture: Path, data: Any, deeds: list[str]) -> None:
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
        same(watched.end(), parsed(folder / main), ordered=False)


@every_fixture
@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_chunking_of_the_writes_gives_what_parsing_gives(fixture: Path, data: Any) -> None:
    """Logs grow by any number of bytes, documents are rewritten, half at times: same blocks."""
    follow_by_chance(fixture, data, ["grow"])


@every_fixture
@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_rewriting_gives_what_parsing_gives(fixture: Path, data: Any) -> None:
    """Files are cut off and written again, or replaced by ones that lack a row: same blocks."""
    follow_by_chance(fixture, data, ["grow", "grow", "grow", "cut", "replace"])


def user(name: str, text: str, **fields: Any) -> dict[str, Any]:
    """Return a prompt."""
    return {"id": name, "type": "user", "content": [{"text": text}], **fields}


def model(name: str, text: Any, **fields: Any) -> dict[str, Any]:
    """Return an answer with its tokens."""
    return {"id": name, "type": "gemini", "content": text, "tokens": TOKENS, **fields}


def tool(name: str, output: str = "done", **fields: Any) -> dict[str, Any]:
    """Return a call that is complete, as a message has it."""
    response = {"functionResponse": {"id": name, "name": "ls", "response": {"output": output}}}
    call = {"id": name, "name": "ls", "args": {}, "status": "success", "result": [response]}
    return {**call, **fields}


def lines(*rows: Any) -> bytes:
    """Return rows as a log has them."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def append(path: Path, *rows: Any) -> None:
    """Write rows to the end of a log."""
    with path.open("ab") as file:
        file.write(lines(*rows))


def document(path: Path, *messages: Any, **fields: Any) -> bytes:
    """Write a document with these messages; return its bytes."""
    data = json.dumps({**HEADER, "messages": messages, **fields}, indent=2).encode()
    path.write_bytes(data)
    return data


TALK = [HEADER, user("u1", "one"), model("g1", "first")]
MORE = [user("u2", "two"), model("g2", "second")]


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """Return where a session's log will be: among the chats of a project."""
    return tmp_path / "tmp" / "w" / "chats" / f"{NAME}.jsonl"


@pytest.fixture
def watched(main: Path) -> Watched:
    """Return a follower of a session that is there: a prompt and its answer, both told."""
    main.parent.mkdir(parents=True)
    main.write_bytes(lines(*TALK))
    watched = Watched(main)
    watched.poll()
    return watched


def test_a_file_may_come_late_and_its_folder_too(main: Path) -> None:
    """Until then there is nothing to tell, and nothing wrong."""
    watched = Watched(main)
    assert watched.poll() == []
    main.parent.mkdir(parents=True)
    assert watched.poll() == []
    main.write_bytes(lines(*TALK))
    assert watched.told() == [("complete", "u1:p", []), ("complete", "g1:x", [])]
    assert watched.poll() == []


def test_a_line_without_its_end_is_waited_for(watched: Watched) -> None:
    """A block comes when its line is whole, and the torn end is no finding until there is one."""
    line = lines(*MORE)
    for at in range(0, len(line), 50):
        with watched.main.open("ab") as file:
            file.write(line[at : at + 50])
        watched.poll()
        assert watched.follower.findings == []
    assert watched.texts() == ["one", "first", "two", "second"]
    with watched.main.open("ab") as file:
        file.write(b'{"id":"u3","type":"us')
    watched.end()
    assert [finding.id for finding in watched.follower.findings] == ["torn-tail"]


def test_a_call_is_told_once_it_is_there_and_its_message_not_again(watched: Watched) -> None:
    """Its message is appended again with it. What that took is told when it grows no more."""
    append(watched.main, MORE[0], model("g2", "look"))
    assert watched.told() == [
        ("update", "g1:x", ["usage"]), ("complete", "u2:p", []), ("complete", "g2:x", []),
    ]  # fmt: skip
    append(watched.main, {"$set": {"lastUpdated": "x"}}, model("g2", "look", toolCalls=[tool("c")]))
    assert watched.told() == [("complete", "g2:cc", []), ("complete", "g2:rc", [])]
    append(watched.main, user("u3", "three"))
    assert watched.told() == [("update", "g2:rc", ["usage"]), ("complete", "u3:p", [])]
    same(watched.end(), parsed(watched.main), ordered=False)


def test_a_message_that_grows_is_updated(watched: Watched) -> None:
    """Text that is longer, an output that was cut: the richest version stands."""
    append(watched.main, model("g1", "first of all", toolCalls=[tool("c", "ab")]))
    watched.poll()
    append(watched.main, model("g1", "first of all", toolCalls=[tool("c", "abc")]))
    (event,) = watched.poll()
    assert (event["blockId"], event["updates"]["output"]) == ("g1:rc", "abc")
    assert watched.texts() == ["one", "first of all"]


def test_an_answer_without_content_is_told_when_it_is_over(watched: Watched) -> None:
    """Until then its call may come; what was spent stands on one block."""
    append(watched.main, model("g2", ""), model("g2", "", toolCalls=[tool("c", "ab")]))
    told = [event["blockId"] for event in watched.poll() if event["type"] == "block_complete"]
    assert told == ["g2:cc", "g2:rc"]
    append(watched.main, model("g3", ""))
    assert not [event for event in watched.poll() if event.get("blockId") == "g3:l"]
    append(watched.main, user("u4", "more"))
    watched.poll()
    watched.poll()
    (empty,) = (block for block in watched.reducer.blocks() if block["id"] == "g3:l")
    assert (empty["hidden"], empty["usage"]["totalTokens"]) == (True, 13)


def test_a_resume_that_restates_everything_tells_nothing(watched: Watched) -> None:
    """Poorer, with the results in turns of their own, and under the ids that it had."""
    append(watched.main, *MORE[:1], model("g2", "second", toolCalls=[tool("c")]), user("u3", "3"))
    watched.poll()
    call = {"functionCall": {"id": "c", "name": "ls", "args": {}}}
    again = [
        user("u1", "one"), {"id": "g1", "type": "gemini", "content": [{"text": "first"}]},
        user("u2", "two"), {"id": "g2", "type": "gemini", "content": [{"text": "second"}, call]},
        {"id": "g2_response", "type": "user", "content": tool("c")["result"]}, user("u3", "3"),
    ]  # fmt: skip
    append(watched.main, HEADER, {"$set": {"messages": again}})
    assert watched.poll() == []
    same(watched.end(), parsed(watched.main), ordered=False)


def test_what_a_rewind_drops_is_superseded_and_may_come_back(watched: Watched) -> None:
    """Each time by an update, and only of what is not as it was, when nothing more comes."""
    append(watched.main, *MORE)
    watched.poll()
    append(watched.main, {"$rewindTo": "u2"})
    assert watched.poll() == []
    assert watched.told() == [("update", f"{name}", ["superseded"]) for name in ("u2:p", "g2:x")]
    assert watched.texts() == ["one", "first"]
    append(watched.main, {"$set": {"messages": [*TALK[1:], *MORE[:1]]}})
    assert [*watched.told(), *watched.told()] == [("update", "u2:p", ["superseded"])]
    append(watched.main, {"$rewindTo": "nobody"})
    told = [*watched.told(), *watched.told()]
    assert {tuple(fields) for _, _, fields in told} == {("superseded",)}
    assert watched.texts() == []
    same(watched.end(), parsed(watched.main), ordered=False)


def test_a_header_that_restates_messages_brings_back_what_was_dropped(watched: Watched) -> None:
    """An old whole file in a log is a header with its messages."""
    append(watched.main, {"$set": {"messages": []}})
    watched.poll()
    assert watched.told()
    assert watched.texts() == []
    append(watched.main, {**HEADER, "messages": TALK[1:]})
    watched.poll()
    watched.poll()
    assert watched.texts() == ["one", "first"]
    same(watched.end(), parsed(watched.main), ordered=False)


def test_an_id_that_cannot_name_a_folder_has_none(main: Path) -> None:
    """A file may say anything."""
    main.parent.mkdir(parents=True)
    for name in ("a\0b", "../x", "a/b", "x" * 300):
        append(main, {**HEADER, "sessionId": name}, *TALK[1:])
        watched = Watched(main)
        watched.poll()
        assert watched.texts() == ["one", "first"]
        same(watched.end(), parsed(main), ordered=False)
        main.unlink()


def test_a_list_that_is_empty_for_a_moment_drops_nothing(watched: Watched) -> None:
    """A resume in the same minute writes one with nothing but the context, and then the whole."""
    context = user("ctx", "<session_context>c</session_context>")
    append(watched.main, HEADER, {"$set": {"messages": [context]}})
    assert watched.told() == [("update", "g1:x", ["usage"]), ("complete", "ctx:s0", [])]
    append(watched.main, {"$set": {"messages": [context, *TALK[1:]]}}, *MORE)
    assert {kind for kind, _, _ in watched.told()} == {"complete"}
    assert watched.texts() == ["one", "first", "two", "second"]
    same(watched.end(), parsed(watched.main), ordered=False)


def test_a_result_without_a_call_waits_for_it_until_the_end(watched: Watched) -> None:
    """Then it is an orphan, and said to be."""
    append(watched.main, {"id": "u2", "type": "user", "content": tool("c")["result"]})
    watched.poll()
    assert "u2:rc" not in {block["id"] for block in watched.reducer.blocks()}
    same(watched.end(), parsed(watched.main), ordered=False)
    assert [finding.id for finding in watched.follower.findings] == ["orphan-result"]


def test_a_log_that_is_cut_off_and_written_again_is_told_only_where_it_differs(
    watched: Watched,
) -> None:
    """Between the two, what was cut off does not stand; after them it does again."""
    watched.main.write_bytes(b"")
    watched.poll()
    assert watched.texts() == []
    watched.main.write_bytes(lines(*TALK, *MORE))
    assert ("update", "u1:p", ["superseded"]) in watched.told()
    assert watched.texts() == ["one", "first", "two", "second"]
    same(watched.end(), parsed(watched.main), ordered=False)


def test_only_what_differs_in_a_rewritten_document_is_told(tmp_path: Path) -> None:
    """The client writes the whole of it for every message, and the last message anew."""
    watched = Watched(tmp_path / f"{NAME}.json")
    document(watched.main, user("u1", "one"), model("g1", "first"))
    assert watched.told() == [("complete", "u1:p", []), ("complete", "g1:x", [])]
    document(watched.main, user("u1", "one"), model("g1", "first", toolCalls=[tool("c")]))
    assert watched.told() == [("complete", "g1:cc", []), ("complete", "g1:rc", [])]
    document(watched.main, user("u1", "one"), model("g1", "first", toolCalls=[tool("c")]), *MORE)
    assert watched.told() == [
        ("update", "g1:rc", ["usage"]), ("complete", "u2:p", []), ("complete", "g2:x", []),
    ]  # fmt: skip
    assert watched.poll() == []
    document(watched.main, user("u1", "one"))
    watched.poll()
    assert watched.texts() == ["one"]
    same(watched.end(), parsed(watched.main), ordered=False)


def test_a_half_written_document_takes_nothing_back(tmp_path: Path) -> None:
    """It is seen while the client writes it. Only at the end it is all that there is."""
    watched = Watched(tmp_path / f"{NAME}.json")
    data = document(watched.main, *TALK[1:], *MORE)
    watched.poll()
    for size in (0, 10, len(data) // 2, len(data) - 1):
        watched.main.write_bytes(data[:size])
        assert watched.poll() == []
    assert watched.texts() == ["one", "first", "two", "second"]
    watched.main.write_bytes(data[: data.index(b"second")])
    same(watched.end(), parsed(watched.main), ordered=False)
    assert watched.texts() == ["one", "first", "two"]
    assert "half-document" in {finding.id for finding in watched.follower.findings}


def test_a_document_that_a_newer_client_goes_on_with_is_followed_in_its_log(main: Path) -> None:
    """The log begins as a copy: what it does not have yet is not taken to be gone."""
    main.parent.mkdir(parents=True)
    watched = Watched(main.with_suffix(".json"))
    document(watched.main, *TALK[1:], *MORE)
    watched.poll()
    append(main, HEADER)
    assert watched.poll() == []
    append(main, *TALK[1:], MORE[0])
    assert {tuple(event["updates"]) for event in watched.poll()} == {("source",)}
    append(main, MORE[1], user("u3", "three"))
    assert watched.told()[-1] == ("complete", "u3:p", [])
    assert watched.texts() == ["one", "first", "two", "second", "three"]
    same(watched.end(), parsed(main), ordered=False)


def test_a_log_of_another_session_is_not_the_documents_own(main: Path) -> None:
    """Names say a minute and eight letters, which two sessions may share."""
    main.parent.mkdir(parents=True)
    watched = Watched(main.with_suffix(".json"))
    document(watched.main, *TALK[1:])
    watched.poll()
    append(main, {**HEADER, "sessionId": CHILD}, *MORE)
    assert watched.poll() == []


@pytest.mark.parametrize("what", ["file", "project", "to another project"])
def test_what_is_renamed_is_followed_there(watched: Watched, what: str) -> None:
    """And the new place is where subagents are looked for. Nothing is told twice."""
    old = watched.main
    project = old.parent.parent
    if what == "file":
        new = old.with_name("renamed.jsonl")
    elif what == "project":
        new = project.with_name("moved") / "chats" / old.name
        project.rename(project.with_name("moved"))
    else:
        new = project.with_name("other") / "chats" / old.name
        new.parent.mkdir(parents=True)
    if old.exists():
        old.rename(new)
    assert watched.poll() == []
    append(new, *MORE)
    assert [event["blockId"] for event in watched.poll()] == ["g1:x", "u2:p", "g2:x"]
    child(new)
    assert CHILD in {event["conversationId"] for event in watched.poll()}


def child(main: Path, *rows: Any, **header: Any) -> Path:
    """Write the log of a subagent into the session's folder; return where it is."""
    path = main.with_name(SESSION) / f"{CHILD}.jsonl"
    path.parent.mkdir(exist_ok=True)
    own = {**HEADER, "sessionId": CHILD, "kind": "subagent", **header}
    path.write_bytes(lines(own, user("c1", "look", timestamp="2026-01-01T00:00:02Z"), *rows))
    return path


def test_a_deleted_file_unsays_nothing_and_may_come_back(watched: Watched) -> None:
    """What was told was said. A new file in its place is the session then."""
    watched.main.unlink()
    assert watched.poll() == []
    assert watched.texts() == ["one", "first"]
    watched.main.write_bytes(lines(*TALK, *MORE))
    assert [event["blockId"] for event in watched.poll()] == ["g1:x", "u2:p", "g2:x"]


def test_a_subagent_is_followed_in_a_thread_of_its_own(watched: Watched) -> None:
    """From when its file appears, and tied to its call when that is told at last."""
    stranger = child(watched.main).rename(watched.main.with_name("x.jsonl"))
    path = child(watched.main)
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    assert watched.poll() == []
    path.write_bytes(whole)
    assert {event["conversationId"] for event in watched.poll()} == {CHILD}
    append(path, model("c2", "seen"), {"$set": {"summary": "it is fine"}})
    watched.poll()
    said = [block for block in watched.reducer.blocks(CHILD) if not is_record(block)]
    assert [block["id"] for block in said] == [
        f"{CHILD}:start", "c1:p", "c2:x", f"{CHILD}:end",
    ]  # fmt: skip
    call = tool("c", agentId=CHILD) | {"name": "invoke_agent", "args": {"agent_name": "scout"}}
    append(watched.main, model("g1", "first", toolCalls=[call]))
    watched.poll()
    (block,) = [one for one in watched.reducer.blocks() if one["type"] == "subagent"]
    assert (block["subagentId"], block["link"]["method"]) == (CHILD, "agentId")
    assert watched.reducer.blocks(CHILD)[0]["message"] == "Subagent scout started"
    assert watched.reducer.metadata[CHILD]["link"]["confidence"] == "exact"
    assert stranger.exists()
    same(watched.end(), parsed(watched.main), ordered=False)


def test_a_file_that_takes_the_place_of_anothers_is_looked_at_anew(watched: Watched) -> None:
    """What a path was found to be holds for the file that stood there."""
    path = child(watched.main, kind="main")
    assert watched.poll() == []
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes().replace(b'"main"', b'"subagent"'))
    other.replace(path)
    assert {event["conversationId"] for event in watched.poll()} == {CHILD}
    path.write_bytes(b"")
    watched.poll()
    assert live(watched.reducer.blocks(CHILD)) == []


def test_what_is_no_file_beside_a_session_is_not_opened(watched: Watched) -> None:
    """A pipe under such a name would never be read to its end, and a folder is no transcript."""
    os.mkfifo(watched.main.with_name("session-pipe.jsonl"))
    watched.main.with_name("session-folder.json").mkdir()
    append(watched.main, *MORE)
    watched.poll()
    assert watched.texts() == ["one", "first", "two", "second"]


def test_a_copy_of_a_subagents_file_is_told_once(watched: Watched) -> None:
    """It bears the same id, and says the same."""
    path = child(watched.main)
    copy = path.with_name("z.jsonl")
    copy.write_bytes(path.read_bytes())
    watched.poll()
    assert {*watched.reducer.conversations} == {"main", CHILD}
    same(watched.end(), parsed(watched.main), ordered=False)


def test_an_old_clients_subagent_stands_flat_beside_its_session(tmp_path: Path) -> None:
    """With its parent's id, which its document says first and its kind last."""
    watched = Watched(tmp_path / "session-a.json")
    document(watched.main, user("u1", "one", timestamp="2026-01-01T00:00:01Z"), kind="main")
    watched.poll()
    flat = tmp_path / "session-b.json"
    prompt = user("c1", "Your task is to look", timestamp="2026-01-01T00:00:02Z")
    flat.write_bytes(document(flat, prompt, kind="subagent")[:-30])
    assert watched.poll() == []
    flat.write_bytes(document(flat, prompt, kind="subagent"))
    assert {event["conversationId"][:6] for event in watched.poll()} == {"agent-"}
    same(watched.end(), parsed(watched.main), ordered=False)


def test_a_subagents_file_can_be_followed_by_itself(watched: Watched) -> None:
    """As it can be parsed by itself."""
    path = child(watched.main)
    alone = Watched(path)
    given = alone.end()
    assert set(given) == {CHILD}
    assert [finding.id for finding in alone.follower.findings] == ["orphan-subagent"]


def test_a_header_that_comes_late_names_what_was_told_before(watched: Watched) -> None:
    """The first line was torn: the thread is told again under its own id, once."""
    path = watched.main.with_name("torn.jsonl")
    row = user("c1", "look", timestamp="2026-01-01T00:00:02Z")
    touched = {"$set": {"lastUpdated": "2026-01-01T00:00:02.000Z"}}
    path.write_bytes(b'{"kind":"subagent",\n' + lines(row, touched))
    alone = Watched(path)
    assert "c1:p" in {event["blockId"] for event in alone.poll()}
    append(path, {**HEADER, "sessionId": CHILD})
    alone.poll()
    same(alone.end(), parsed(path))


def test_a_long_session_is_told_in_pieces_and_not_gathered(main: Path) -> None:
    """The first events come long before the last row is read."""
    main.parent.mkdir(parents=True)
    main.write_bytes(lines(HEADER, *(user(f"u{n}", "x" * 1000) for n in range(5000))))
    events = SessionFollower(main, hidden=False).poll()
    before = _read_so_far()
    next(events)
    assert _read_so_far() - before < 3 * 1024 * 1024 < main.stat().st_size


def _read_so_far() -> int:
    counts = Path("/proc/self/io")
    if not counts.exists():
        pytest.skip("the system does not count what a process reads")
    return int(counts.read_text().split("rchar:")[1].split()[0])
