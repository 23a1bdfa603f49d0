"""What a follower emits for a growing session of Gemini CLI, of logs and of documents."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gemini_client import Gemini, Watched
from gemini_reading import FIXTURES, is_record
from watching import live, same

from agentsdir.adapters.gemini.reader import GeminiReader

SESSION = "11111111-2222-4333-8444-555555555555"
CHILD = "99999999-2222-4333-8444-555555555555"
NAME = "session-2026-01-01T00-00-11111111"
HEADER = {"sessionId": SESSION, "projectHash": "h", "startTime": "2026-01-01T00:00:00.000Z"}
TOKENS = {"input": 10, "output": 2, "cached": 4, "thoughts": 1, "tool": 0, "total": 13}


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
parsed = Gemini.parsed


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """Return where a session's log will be: among the chats of a project."""
    path = tmp_path / "tmp" / "w" / "chats" / f"{NAME}.jsonl"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def watched(main: Path) -> Watched:
    """Return a follower of a session that is there: a prompt and its answer, both told."""
    append(main, *TALK)
    watched = Gemini.watch(main)
    watched.poll()
    return watched


def test_a_call_is_reported_once_it_is_there_and_its_message_not_again(watched: Watched) -> None:
    """Its message is appended again with it. Its usage is reported when it grows no more."""
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


def test_an_answer_without_content_is_reported_when_it_is_over(watched: Watched) -> None:
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


def test_an_answer_that_gets_its_content_late_is_no_longer_one_without(watched: Watched) -> None:
    """A resume may state calls whose row was lost."""
    append(watched.main, model("g2", ""), user("u2", "two"))
    assert "g2:l" in {event["blockId"] for event in watched.poll()}
    append(watched.main, model("g2", "", toolCalls=[tool("c")]))
    watched.poll()
    assert "g2:l" not in {block["id"] for block in live(watched.reducer.blocks())}
    same(watched.end(), parsed(watched.main), ordered=False)


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
    for name in ("a\0b", "../x", "a/b", "x" * 300):
        append(main, {**HEADER, "sessionId": name}, *TALK[1:])
        watched = Gemini.watch(main)
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


def test_only_what_differs_in_a_rewritten_document_is_reported(tmp_path: Path) -> None:
    """The client writes the whole of it for every message, and the last message anew."""
    watched = Gemini.watch(tmp_path / f"{NAME}.json")
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
    watched = Gemini.watch(tmp_path / f"{NAME}.json")
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
    watched = Gemini.watch(main.with_suffix(".json"))
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
    watched = Gemini.watch(main.with_suffix(".json"))
    document(watched.main, *TALK[1:])
    watched.poll()
    append(main, {**HEADER, "sessionId": CHILD}, *MORE)
    assert watched.poll() == []


def child(main: Path, *rows: Any, **header: Any) -> Path:
    """Write the log of a subagent into the session's folder; return where it is."""
    path = main.with_name(SESSION) / f"{CHILD}.jsonl"
    path.parent.mkdir(exist_ok=True)
    own = {**HEADER, "sessionId": CHILD, "kind": "subagent", **header}
    path.write_bytes(lines(own, user("c1", "look", timestamp="2026-01-01T00:00:02Z"), *rows))
    return path


def test_the_thread_of_a_subagent_is_tied_to_its_call_when_that_is_reported(
    watched: Watched,
) -> None:
    """And nothing is made of such a file under a name that no client gives."""
    path = child(watched.main).rename(watched.main.with_name("x.jsonl"))
    assert watched.poll() == []
    path = child(watched.main)
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


@pytest.mark.parametrize("read", [0, 2])
def test_a_log_whose_header_is_lost_in_a_copy_is_no_subagents(watched: Watched, read: int) -> None:
    """As long as its header is torn, it may be a document that is being written."""
    call = tool("c", agentId=CHILD) | {"name": "invoke_agent", "args": {"agent_name": "scout"}}
    append(watched.main, model("g2", "", toolCalls=[call]))
    path = child(watched.main, model("c2", "seen", timestamp="2026-01-01T00:00:03Z"))
    data = path.read_bytes()
    torn = data.index(b"}\n") + read
    path.write_bytes(data[:torn])
    watched.poll()
    other = path.with_suffix(".new")
    other.write_bytes(data[torn:])
    other.replace(path)
    same(watched.end(), parsed(watched.main), ordered=False)


def test_a_session_whose_header_is_lost_in_a_copy_has_no_subagents(watched: Watched) -> None:
    """They are another one's now."""
    child(watched.main)
    assert {event["conversationId"] for event in watched.poll()} == {CHILD}
    other = watched.main.with_suffix(".new")
    other.write_bytes(lines(*TALK[1:], model("g2", "second", timestamp="2026-01-01T00:00:04Z")))
    other.replace(watched.main)
    watched.poll()
    assert live(watched.reducer.blocks(CHILD)) == []
    same(watched.end(), parsed(watched.main), ordered=False)


def test_what_is_no_file_beside_a_session_is_not_opened(watched: Watched) -> None:
    """A pipe under such a name would never be read to its end, and a folder is no transcript."""
    os.mkfifo(watched.main.with_name("session-pipe.jsonl"))
    watched.main.with_name("session-folder.json").mkdir()
    append(watched.main, *MORE)
    watched.poll()
    assert watched.texts() == ["one", "first", "two", "second"]


def test_a_copy_of_a_subagents_file_is_reported_once(watched: Watched) -> None:
    """It bears the same id, and says the same."""
    path = child(watched.main)
    copy = path.with_name("z.jsonl")
    copy.write_bytes(path.read_bytes())
    watched.poll()
    assert {*watched.reducer.conversations} == {"main", CHILD}
    same(watched.end(), parsed(watched.main), ordered=False)


def test_an_old_clients_subagent_stands_flat_beside_its_session(tmp_path: Path) -> None:
    """With its parent's id, which its document says first and its kind last."""
    watched = Gemini.watch(tmp_path / "session-a.json")
    document(watched.main, user("u1", "one", timestamp="2026-01-01T00:00:01Z"), kind="main")
    watched.poll()
    flat = tmp_path / "session-b.json"
    prompt = user("c1", "Your task is to look", timestamp="2026-01-01T00:00:02Z")
    whole = document(flat, prompt, kind="subagent")
    for half in (whole[:-30], whole[: whole.index(b"}") + 1]):
        flat.write_bytes(half)
        assert watched.poll() == []
    flat.write_bytes(whole)
    assert {event["conversationId"][:6] for event in watched.poll()} == {"agent-"}
    same(watched.end(), parsed(watched.main), ordered=False)


def test_a_header_that_comes_late_names_what_was_reported_before(watched: Watched) -> None:
    """The first line was torn: the thread is reported again under its own id, once."""
    path = watched.main.with_name("torn.jsonl")
    row = user("c1", "look", timestamp="2026-01-01T00:00:02Z")
    touched = {"$set": {"lastUpdated": "2026-01-01T00:00:02.000Z"}}
    path.write_bytes(b'{"kind":"subagent",\n' + lines(row, touched))
    alone = Gemini.watch(path)
    assert "c1:p" in {event["blockId"] for event in alone.poll()}
    append(path, {**HEADER, "sessionId": CHILD})
    alone.poll()
    same(alone.end(), parsed(path))


@pytest.mark.parametrize("kept", [0, 1, 50, 150])
def test_a_subagents_file_that_is_cut_in_its_header_stays_one(tmp_path: Path, kept: int) -> None:
    """What it is stands in the header, so it is not read before that is whole again."""
    whole = next((FIXTURES / "subagent-0.61" / "chats").glob("*/*.jsonl"))
    data = whole.read_bytes()
    path = tmp_path / whole.name
    path.write_bytes(data)
    watched = Gemini.watch(path)
    watched.poll()
    copy = tmp_path / "copy"
    copy.write_bytes(data[:kept])
    copy.rename(path)
    watched.poll()
    path.write_bytes(data)
    same(watched.end(), parsed(path), ordered=False)
    assert not live(watched.reducer.conversations.get("main", []))


def test_an_id_that_is_too_long_for_a_name_hides_no_session(main: Path) -> None:
    """The folder of its subagents cannot be there; the log itself is read."""
    append(main, {**HEADER, "sessionId": SESSION[:8] + "x" * 3000}, *TALK[1:])
    files = GeminiReader().files(main).transcripts
    assert [one.source.path for one in files] == [main]
