"""Every id that the documents list is said of some real input, by a command, with its severity."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_bench import Bench, change, lines, put, sparse

from agentsdir.formats.findings import FINDINGS
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.log import append_record

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024

Remarks = list[dict[str, Any]]
Case = Callable[[Bench], Remarks]
FOUND: dict[str, Case] = {}
"""Id → a function that makes an input and returns what a command says of it."""


def case(function: Case) -> Case:
    """Register a case under the id that its name spells."""
    FOUND[function.__name__.replace("_", "-")] = function
    return function


# Lines of a log.


def damaged_log(bench: Bench, *changed: Callable[[list[bytes]], list[bytes]]) -> Remarks:
    """Return what `restore` says of a log after a change of its lines."""
    agent = bench.agent()
    log = lines(agent)
    for step in changed:
        log = step(log)
    put(agent, *log)
    return bench.restore()


@case
def bad_data(bench: Bench) -> Remarks:
    """A turn.start that names no messages."""
    return damaged_log(
        bench, lambda log: [line.replace(b'"message_ids"', b'"messages"') for line in log]
    )


@case
def bad_json(bench: Bench) -> Remarks:
    """A record that lost its first byte."""
    return damaged_log(bench, lambda log: [*log[:3], log[3][1:], *log[4:]])


@case
def bad_utf8(bench: Bench) -> Remarks:
    """A byte that begins no character."""
    return damaged_log(bench, lambda log: [line.replace(b'"hello"', b'"hell\xff"') for line in log])


@case
def nul_run(bench: Bench) -> Remarks:
    """A page that was never written, between two records."""
    return damaged_log(bench, lambda log: [*log[:3], bytes(512) + log[3], *log[4:]])


@case
def oversize(bench: Bench) -> Remarks:
    """A last line of 65 MiB that ends in LF."""
    agent = bench.agent()
    put(agent, *lines(agent))
    path = agent / "events.jsonl"
    sparse(path, path.stat().st_size + 65 * MIB)
    with path.open("ab") as stream:
        stream.write(b"\n")
    return bench.restore()


@case
def splice(bench: Bench) -> Remarks:
    """Two records without an LF between them."""
    return damaged_log(bench, lambda log: [*log[:2], log[2].rstrip(), *log[3:]])


@case
def too_deep(bench: Bench) -> Remarks:
    """A line of a hundred thousand brackets."""
    return damaged_log(bench, lambda log: [*log, b'{"a":' + b"[" * 100_000 + b"\n"])


@case
def torn_tail(bench: Bench) -> Remarks:
    """A last record that stops in the middle."""
    return damaged_log(bench, lambda log: [*log[:-1], log[-1][:40]])


@case
def not_a_record(bench: Bench) -> Remarks:
    """An object of another program."""
    return damaged_log(bench, lambda log: [*log, b'{"level":"info"}\n'])


@case
def seq_gap(bench: Bench) -> Remarks:
    """A log from which a line was taken."""
    return damaged_log(bench, lambda log: [*log[:3], *log[4:]])


@case
def chain_break(bench: Bench) -> Remarks:
    """A log in which a word was changed."""
    return damaged_log(bench, lambda log: [line.replace(b'"hello"', b'"hallo"') for line in log])


@case
def stub(bench: Bench) -> Remarks:
    """A torn tail that the next writer set apart."""
    agent = bench.agent()
    with (agent / "events.jsonl").open("ab") as log:
        log.write(b'{"seq":99,"ts":"20')
    assert bench.run("send", agent.name, "again")[0] == 0
    assert bench.restore() == []  # it was set apart, and there is nothing left to do or to say
    return bench.validate()


@case
def creation_lost(bench: Bench) -> Remarks:
    """A first record that cannot be read."""
    return damaged_log(bench, lambda log: [log[0][1:], *log[1:]])


@case
def workspace_differs(bench: Bench) -> Remarks:
    """A captured file whose content is gone."""
    (bench.folder / "notes.txt").write_text("a note")
    agent = bench.agent(turns=0)
    assert bench.run("send", agent.name, "hello")[0] == 0
    assert bench.run("suspend", "--capture", agent.name)[0] == 0
    for blob in (agent / "workspace" / "blobs").iterdir():
        blob.unlink()
    return bench.validate()


@case
def log_shorter(bench: Bench) -> Remarks:
    """A log that lost its last records after state.json was written."""
    agent = bench.agent()
    (agent / "events.jsonl").write_bytes(b"".join(lines(agent)[:-2]))
    return bench.inspect(agent)


@case
def descriptor_differs(bench: Bench) -> Remarks:
    """A descriptor.json that a user edited."""
    agent = bench.agent()
    change(agent / "descriptor.json", b'"cli"', b'"irc"')
    return bench.restore()


@case
def stream_lost(bench: Bench) -> Remarks:
    """A stream that was recorded, and edited since."""
    agent = bench.agent(turns=0)
    assert bench.run("send", "--record", agent.name, "hello")[0] == 0
    (stream,) = (agent / "transcripts").rglob("*.stream")
    change(stream, b"hello", b"hallo")
    return bench.replay(agent)


# Transcripts.

CLAUDE = {
    "isSidechain": False,
    "sessionId": "00000001-0000-4000-8000-000000000001",
    "version": "2.1.98",
    "timestamp": "2026-01-02T03:04:05.678Z",
}


def claude(*rows: dict[str, Any]) -> bytes:
    """Return a transcript of Claude's."""
    return b"".join(orjson.dumps({**CLAUDE, **row}) + b"\n" for row in rows)


def user(uuid: str, parent: str | None, content: Any) -> dict[str, Any]:
    """Return a row of a user."""
    message = {"role": "user", "content": content}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": message}


@case
def doubtful_prompt(bench: Bench) -> Remarks:
    """A text that begins like a command of the client's, and goes on as a person types."""
    text = "<bash-input>ls</bash-input> typed by hand"
    return bench.parse(bench.write("a.jsonl", claude(user("u1", None, text))))


@case
def missing_parent(bench: Bench) -> Remarks:
    """A row that goes on from one that is not there."""
    return bench.parse(bench.write("a.jsonl", claude(user("u1", None, "a"), user("u2", "x", "b"))))


@case
def null_parent(bench: Bench) -> Remarks:
    """A row of a fork of Gemini's that begins anew in the middle."""
    data = b"".join(
        b'{"uuid":"%s","parentUuid":%s,"sessionId":"s","type":"user","message":'
        b'{"role":"user","parts":[{"text":"x"}]}}\n' % row
        for row in ((b"a", b"null"), (b"b", b'"a"'), (b"c", b"null"))
    )
    return bench.parse(bench.write("a.jsonl", data))


@case
def parent_cycle(bench: Bench) -> Remarks:
    """Two rows, each after the other."""
    return bench.parse(bench.write("a.jsonl", claude(user("u1", "u2", "a"), user("u2", "u1", "b"))))


@case
def drift(bench: Bench) -> Remarks:
    """A row of a type that no client wrote yet."""
    row = {"type": "tomorrow", "sessionId": "s"}
    return bench.parse(bench.write("a.jsonl", claude(user("u1", None, "a"), row)))


@case
def orphan_result(bench: Bench) -> Remarks:
    """A result of a call that is not there."""
    result = {"type": "tool_result", "tool_use_id": "t9", "content": "ok"}
    return bench.parse(bench.write("a.jsonl", claude(user("u1", None, [result]))))


@case
def orphan_subagent(bench: Bench) -> Remarks:
    """A subagent's file beside a main one that called none."""
    session = CLAUDE["sessionId"]
    bench.write(f"p/{session}.jsonl", claude(user("u1", None, "go")))
    child = {**user("s1", None, "review"), "isSidechain": True, "agentId": "abc1"}
    bench.write(f"p/{session}/subagents/agent-abc1.jsonl", claude(child))
    return bench.parse("p")


@case
def mixed_sessions(bench: Bench) -> Remarks:
    """A row of another session, where two clients met."""
    other = {**user("u2", "u1", "b"), "sessionId": "22222222-0000-4000-8000-000000000002"}
    return bench.parse(bench.write("a.jsonl", claude(user("u1", None, "a"), other)))


@case
def unrecorded_usage(bench: Bench) -> Remarks:
    """A count by the client itself, with nothing to show for it."""
    spent = {"type": "cost-state", "sessionId": CLAUDE["sessionId"]}
    spent["modelUsage"] = {"m": {"inputTokens": 7, "outputTokens": 3}}
    return bench.parse(bench.write("a.jsonl", claude(user("u1", None, "a"), spent)))


@case
def not_an_object(bench: Bench) -> Remarks:
    """A list among the rows."""
    return bench.parse(bench.write("a.jsonl", claude(user("u1", None, "a")) + b"[1]\n"))


@case
def half_document(bench: Bench) -> Remarks:
    """A chat file that was cut."""
    data = b'{"sessionId":"s","projectHash":"p","startTime":"2026-01-02T03:04:05.678Z",'
    data += b'"lastUpdated":"2026-01-02T03:04:05.678Z","messages":[{"id":"m1","timestamp":'
    data += b'"2026-01-02T03:04:05.678Z","type":"user","content":"hi"},{"id":"m2","ty'
    return bench.parse(bench.write("session-a.json", data))


@case
def no_messages(bench: Bench) -> Remarks:
    """A chat file with its header only."""
    data = b'{"sessionId":"s","projectHash":"p","startTime":"2026-01-02T03:04:05.678Z",'
    data += b'"lastUpdated":"2026-01-02T03:04:05.678Z","kind":"main"}\n'
    return bench.parse(bench.write("session-a.jsonl", data))


@case
def last_resort(bench: Bench) -> Remarks:
    """The prompts of a session whose own file is gone."""
    entry = b'{"sessionId":"s","messageId":0,"type":"user","message":"hi"}'
    return bench.parse(bench.write("logs.json", b"[" + entry + b"]"))


@case
def shared_id(bench: Bench) -> Remarks:
    """A document, and the log with which a newer client went on from it."""
    message = b'{"id":"u","type":"user","content":"hi"}'
    head = b'{"sessionId":"s","projectHash":"p"'
    bench.write("p/session-a.json", head + b',"messages":[' + message + b"]}")
    bench.write("p/session-a.jsonl", head + b"}\n" + message + b"\n")
    return bench.parse("p")


@case
def unread_output(bench: Bench) -> Remarks:
    """A call whose output points to a file that is not its session's."""
    said = "Output too large. Showing first 1 characters. For full output see: /etc/x\\na"
    return bench.parse(
        bench.write(
            "session-a.jsonl",
            b'{"sessionId":"s","projectHash":"p","kind":"main"}\n'
            b'{"id":"g","type":"gemini","content":"","toolCalls":[{"id":"c","name":"ls",'
            b'"status":"success","result":"' + said.encode() + b'"}]}\n',
        )
    )


@case
def skipped_file(bench: Bench) -> Remarks:
    """A file of another kind in a folder."""
    bench.write("p/a.jsonl", claude(user("u1", None, "a")))
    bench.write("p/package.json", b'{"name": "x"}')
    return bench.parse("p")


@case
def empty_file(bench: Bench) -> Remarks:
    """A file without a byte in a folder."""
    bench.write("p/a.jsonl", claude(user("u1", None, "a")))
    bench.write("p/b.jsonl", b"")
    return bench.parse("p")


# Files and folders; what only `validate` looks at.


@case
def unreadable(bench: Bench) -> Remarks:
    """A file in place of the folder of transcripts, so that nothing in it can be opened."""
    agent = bench.agent(turns=0)
    (agent / "transcripts").write_bytes(b"")
    return bench.validate()


@case
def unsafe_path(bench: Bench) -> Remarks:
    """A link in place of a document."""
    agent = bench.agent()
    (agent / "state.json").rename(bench.folder / "away.json")
    (agent / "state.json").symlink_to(bench.folder / "away.json")
    return bench.validate()


@case
def wide_mode(bench: Bench) -> Remarks:
    """A log that others may read."""
    (bench.agent() / "events.jsonl").chmod(0o644)
    return bench.validate()


@case
def leftover(bench: Bench) -> Remarks:
    """A temporary file that was never renamed."""
    (bench.agent() / ".tmp-state.json-0").touch(0o600)
    return bench.validate()


@case
def foreign_entry(bench: Bench) -> Remarks:
    """A folder among the agents that is none."""
    bench.agent()
    (bench.root / "agents" / "Backup").mkdir(0o700)
    return bench.validate()


@case
def missing(bench: Bench) -> Remarks:
    """A derived file that was removed."""
    (bench.agent() / "session.json").unlink()
    return bench.validate()


@case
def no_log(bench: Bench) -> Remarks:
    """An agent without its log."""
    (bench.agent() / "events.jsonl").unlink()
    return bench.validate()


@case
def first_event(bench: Bench) -> Remarks:
    """A log that begins with its second record."""
    agent = bench.agent()
    put(agent, *lines(agent)[1:])
    return bench.validate()


@case
def id_differs(bench: Bench) -> Remarks:
    """A folder that was renamed."""
    agent = bench.agent()
    agent.rename(agent.with_name("z" * 24))
    return bench.validate()


@case
def session_id_differs(bench: Bench) -> Remarks:
    """A session.json of another agent's session."""
    agent, other = bench.agent(), bench.agent()
    (agent / "session.json").write_bytes((other / "session.json").read_bytes())
    return bench.validate()


@case
def illegal_transition(bench: Bench) -> Remarks:
    """A session that becomes what it never can."""
    agent = bench.agent(turns=0)
    assert bench.run("resume", agent.name)[0] == 0
    change(agent / "events.jsonl", b'"to":"active"', b'"to":"suspended"')
    return bench.validate()


@case
def turn_order(bench: Bench) -> Remarks:
    """A turn for a message that was never sent."""
    agent = bench.agent()
    change(agent / "events.jsonl", b'"message_ids":["', b'"message_ids":["x')
    return bench.validate()


def forced(bench: Bench, *records: tuple[str, dict[str, Any]]) -> Remarks:
    """Return what `validate` says of an agent whose log got records that no writer would write."""
    agent = bench.agent()
    paths = AgentPaths(agent, agent.name)
    for event, data in records:
        state = read_agent(paths, whole=True).state
        ts = "2026-01-02T03:04:05.678900Z"
        append_record(paths.log, state.position, event, data, ts, state.session.id, Disk())
    return bench.validate()


@case
def after_close(bench: Bench) -> Remarks:
    """A closed agent that gets a tag."""
    return forced(
        bench,
        ("session.state", {"from": "suspended", "to": "terminated", "reason": "close"}),
        ("agent.tagged", {"tags": ["late"]}),
    )


@case
def spawn_order(bench: Bench) -> Remarks:
    """A subagent that ends twice."""
    ended = {"child": "c" * 24, "name": "kid", "status": "error"}
    return forced(bench, ("agent.spawned", ended), ("agent.spawned", ended))


@case
def outgoing_order(bench: Bench) -> Remarks:
    """A text that a connector took, and that no turn had written."""
    return forced(bench, ("outgoing.delivered", {"message_id": "m" * 24}))


@case
def derived_differs(bench: Bench) -> Remarks:
    """A block that the history has, and the log has not."""
    with (bench.agent() / "history.jsonl").open("ab") as history:
        history.write(b'{"type":"reset","at":"2026-01-02T03:04:05.678900Z","seq":99}\n')
    return bench.validate()


@case
def derived_stale(bench: Bench) -> Remarks:
    """A state.json of an earlier time."""
    agent = bench.agent()
    old = (agent / "state.json").read_bytes()
    assert bench.run("resume", agent.name)[0] == 0
    (agent / "state.json").write_bytes(old)
    return bench.validate()


def transcript(agent: Path) -> Path:
    """Return the one stored transcript."""
    (path,) = (agent / "transcripts").glob("*-*.jsonl")
    return path


@case
def transcript_missing(bench: Bench) -> Remarks:
    """A transcript that was removed."""
    transcript(bench.agent()).unlink()
    return bench.validate()


@case
def transcript_differs(bench: Bench) -> Remarks:
    """A transcript that was edited."""
    change(transcript(bench.agent()), b"hello", b"hallo")
    return bench.validate()


@case
def transcript_ahead(bench: Bench) -> Remarks:
    """A transcript that was stored by a turn which died before it said so."""
    with transcript(bench.agent()).open("ab") as stream:
        stream.write(b"{}\n")
    return bench.validate()


@case
def transcript_unlisted(bench: Bench) -> Remarks:
    """A file among the transcripts that the log does not name."""
    path = bench.agent() / "transcripts" / "notes.txt"
    path.touch(0o600)
    return bench.validate()


@case
def unknown_version(bench: Bench) -> Remarks:
    """A directory of version 2."""
    bench.agent()
    change(bench.root / "agentsdir.json", b'"version": 1', b'"version": 2')
    return bench.validate()


@case
def unknown_feature(bench: Bench) -> Remarks:
    """A directory with a feature of the future."""
    bench.agent()
    change(bench.root / "agentsdir.json", b'"features": []', b'"features": ["sealed"]')
    return bench.validate()


@case
def unknown_setting(bench: Bench) -> Remarks:
    """A misspelt key."""
    bench.agent()
    settings = bench.root / "settings.toml"
    settings.touch(0o600)
    settings.write_text("max_slot = 2\n")
    return bench.validate()


@case
def bad_settings(bench: Bench) -> Remarks:
    """A durability that there is not."""
    bench.agent()
    settings = bench.root / "settings.toml"
    settings.touch(0o600)
    settings.write_text('durability = "sometimes"\n')
    return bench.validate()


@case
def unknown_kind(bench: Bench) -> Remarks:
    """A line of something else in a file of events."""
    event = b'{"type":"metadata_update","metadata":{},"conversationId":"main"}\n'
    return bench.validate(bench.write("e.jsonl", event + b'{"level":"info"}\n'))


@case
def schema(bench: Bench) -> Remarks:
    """A count that is a text."""
    change(bench.agent() / "state.json", b'"turns": 1', b'"turns": "1"')
    return bench.validate()


@case
def duplicate_key(bench: Bench) -> Remarks:
    """A document that says two things."""
    change(bench.agent() / "session.json", b'"model":', b'"model": "x",\n  "model":')
    return bench.validate()


@case
def big_integer(bench: Bench) -> Remarks:
    """A number that readers round."""
    change(bench.agent() / "state.json", b'"turns": 1', b'"turns": 9007199254740993')
    return bench.validate()


def documented(table: str, page: str) -> dict[str, str]:
    """Return id and severity of each row of a table in a document."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = text.split(f"<!-- {table}: begin -->")[1].split(f"<!-- {table}: end -->")[0]
    return dict(re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \|", text, re.MULTILINE))


SEVERITIES = {
    **documented("findings", "SPEC.md"),
    **documented("findings", "docs/reading.md"),
    **documented("problems", "docs/operations.md"),
}


def test_the_cases_are_the_documented_ids_and_those_of_the_code() -> None:
    """None is missing, and none is more than what the documents list."""
    assert sorted(FOUND) == sorted(SEVERITIES)
    assert {name: severity for name, (severity, _) in FINDINGS.items()} == SEVERITIES


@pytest.mark.feature("C-15", "C-09")
@pytest.mark.parametrize("name", FOUND)
def test_every_documented_id_is_said_of_some_input(name: str, tmp_path: Path) -> None:
    """With the documented severity, and with a place."""
    remarks = FOUND[name](Bench(tmp_path))
    said = {remark["id"]: remark for remark in remarks}
    assert name in said, sorted(said)
    for remark in remarks:
        assert remark["severity"] == SEVERITIES[remark["id"]]
        assert remark["file"]
        assert remark.get("message") or remark.get("reason")


def test_sound_input_has_no_remark(tmp_path: Path) -> None:
    """The same makers, with nothing broken."""
    bench = Bench(tmp_path)
    agent = bench.agent(turns=2)
    put(agent, *lines(agent))
    assert bench.run("restore")[0] == 0
    assert bench.validate() + bench.restore() + bench.inspect(agent) == []
    assert bench.parse(bench.write("a.jsonl", claude(user("u1", None, "a")))) == []
