"""Whatever a writer of ours can emit is valid: records, blocks, events, documents, whole agents."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import printed
from declared_fields import undeclared
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.engine import lookup
from agentsdir.engine.bundle import saved_files
from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import send
from agentsdir.engine.parse import find_sessions, parse_all
from agentsdir.engine.parse_report import ParseReport
from agentsdir.engine.replay import replay
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.services import Services
from agentsdir.engine.session_data import runtime_session, saved_session
from agentsdir.engine.slots import resume, suspend
from agentsdir.engine.snapshots import check_snapshot, inspection, snapshot
from agentsdir.engine.timeline import Timeline
from agentsdir.engine.validate.files import validate
from agentsdir.formats import times
from agentsdir.formats.blocks import (
    BLOCKS,
    add_usage,
    as_usage,
    block_complete,
    block_start,
    block_update,
    check_block,
    make_block,
    metadata_update,
    no_usage,
    text_delta,
    usage,
)
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.findings import FINDINGS, Finding
from agentsdir.formats.source import Source
from agentsdir.formats.store import derived
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.events import EVENTS
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.log import NO_LINE, Position, Record, encode_record
from agentsdir.formats.store.saved_files import file_entries
from agentsdir.formats.store.state import (
    HEAD,
    AgentState,
    Inbox,
    SessionRecord,
    SessionState,
    Waiting,
)

pytestmark = pytest.mark.feature("C-09", "S-05")

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
WORD = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
AGENT_ID = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=24, max_size=32)
SESSION_ID = st.text("0123456789abcdef", min_size=32, max_size=32)
TIME = st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)).map(times.to_text)
COUNT = st.integers(0, 2**53 - 1)
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53) + 1, 2**53 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXT,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
STATES = st.sampled_from([state.value for state in SessionState])
OUTCOME = st.sampled_from(["completed", "failed", "aborted"])
STATUS = st.sampled_from(["pending", "running", "success", "error"])
TOKENS = st.integers(0, 10**12)  # sums of these stay exact
USAGE = st.builds(usage, TOKENS, TOKENS, TOKENS, TOKENS, st.none() | TOKENS, exact=st.booleans())
NATIVE = st.fixed_dictionaries({"architecture": WORD, "id": WORD, "cwd": TEXT})
IMAGE = st.fixed_dictionaries(
    {"type": st.sampled_from(["base64", "url"]), "data": TEXT}, optional={"mediaType": TEXT}
)
PART = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}),
    st.fixed_dictionaries({"type": st.just("image"), "source": IMAGE}),
)
PARTS = st.lists(PART, min_size=1, max_size=3)
DESCRIPTOR = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("user"), "connector": WORD, "userId": TEXT, "channelId": WORD}
    ),
    st.fixed_dictionaries({"type": st.just("cron"), "id": WORD}),
    st.just({"type": "heartbeat"}),
    st.fixed_dictionaries(
        {"type": st.just("subagent"), "id": AGENT_ID, "parentAgentId": AGENT_ID, "name": WORD}
    ),
)
SYNCED = st.fixed_dictionaries(
    {
        "path": WORD,
        "role": st.sampled_from(["main", "subagent"]),
        "size": COUNT,
        "sha256": st.text("0123456789abcdef", min_size=64, max_size=64),
    },
    optional={"chunk": st.just(1_048_576)},
)
OWN: dict[str, Any] = {
    "user_message": ({"content": TEXT | PARTS}, {}),
    "assistant_text": ({"content": TEXT}, {"model": TEXT}),
    "thinking": (
        {"content": TEXT},
        {"summary": TEXT, "signature": TEXT, "redacted": st.booleans()},
    ),
    "tool_use": (
        {"toolName": TEXT, "toolUseId": TEXT, "input": JSON, "status": STATUS},
        {"displayName": TEXT, "description": TEXT},
    ),
    "tool_result": (
        {"toolUseId": TEXT, "output": JSON, "isError": st.booleans()},
        {"durationMs": COUNT, "display": JSON, "synthetic": st.booleans()},
    ),
    "system": (
        {"subtype": st.sampled_from(["session_start", "status", "log"]), "message": TEXT},
        {"metadata": st.dictionaries(TEXT, JSON, max_size=2)},
    ),
    "subagent": (
        {"subagentId": st.none() | TEXT, "input": TEXT, "status": STATUS},
        {
            "name": TEXT,
            "description": TEXT,
            "output": TEXT,
            "durationMs": COUNT,
            "toolUseId": TEXT,
        },
    ),
}
COMMON = {
    "messageId": TEXT,
    "hidden": st.booleans(),
    "superseded": st.booleans(),
    "lossy": st.lists(st.sampled_from(["too-deep", "bad-utf8"]), max_size=2),
    "usage": USAGE,
}
PLACE = st.fixed_dictionaries(
    {"file": TEXT, "line": st.integers(1, 9), "offset": COUNT, "length": COUNT}
)


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    """Return a block of any type, made as adapters make them."""
    kind = draw(st.sampled_from(tuple(BLOCKS)))
    required, optional = OWN[kind]
    fields = draw(st.fixed_dictionaries(required, optional={**optional, **COMMON}))
    return make_block(
        kind,
        draw(WORD),
        draw(st.just("main") | WORD),
        draw(TEXT),
        draw(st.none() | TIME),
        draw(st.none() | PLACE),  # type: ignore[arg-type]
        **fields,
    )


def data(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for an event's data."""
    return st.fixed_dictionaries(required, optional=optional)


COST = st.floats(0, 10**6)
BUDGET = st.dictionaries(
    st.sampled_from(["tokens", "turns", "seconds", "cost"]), st.integers(0, 10**15)
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "cwd": TEXT,
        "model": TEXT,
        "system_prompt": TEXT,
        "permission_mode": st.sampled_from(["", "default", "plan"]),
        "fallbacks": st.lists(WORD, max_size=2),
        "budget": BUDGET,
    },
)
VALUES = st.dictionaries(TEXT, JSON, max_size=3)
ENTRIES = st.lists(
    st.fixed_dictionaries({"conversation_id": WORD, "id": WORD})
    | st.fixed_dictionaries({"block": blocks()}),
    max_size=2,
)
EVENT_DATA = {
    "session.created": data(
        {
            "agent_id": AGENT_ID,
            "descriptor": DESCRIPTOR,
            "provider": WORD,
            "model": TEXT,
            "system_prompt": TEXT,
            "profile": TEXT,
            "cwd": TEXT,
            "permission_mode": st.none() | st.just("plan"),
            "limits": st.just({}),
            "options": st.dictionaries(TEXT, TEXT, max_size=2),
            "native": NATIVE,
        },
        name=WORD,
        parentAgentId=AGENT_ID,
        fallbacks=st.lists(WORD, max_size=2),
        ephemeral=st.booleans(),
    ),
    "session.state": data(
        {"from": STATES, "to": STATES, "reason": TEXT}, provider_state=st.just("AAA=")
    ),
    "message.enqueued": data(
        {"message_id": AGENT_ID, "sender": WORD, "kind": st.just("user"), "content": PARTS},
        reply_to=st.none() | AGENT_ID,
        sync=st.booleans(),
        spawn=st.booleans(),
        notice=st.booleans(),
        retry_of=AGENT_ID,
        permission_mode=st.sampled_from(["default", "plan"]),
    ),
    "message.delivered": data({"message_id": AGENT_ID, "outcome": OUTCOME}),
    "message.sent": data(
        {"message_id": AGENT_ID, "to": AGENT_ID, "turn_id": AGENT_ID}, sync=st.booleans()
    ),
    "message.unsent": data(
        {
            "to": AGENT_ID,
            "message": st.fixed_dictionaries(
                {
                    "message_id": AGENT_ID,
                    "sender": WORD,
                    "kind": st.just("system"),
                    "content": PARTS,
                },
                optional={"reply_to": AGENT_ID, "notice": st.just(value=True)},
            ),
        }
    ),
    "message.resent": data({"message_id": AGENT_ID, "outcome": WORD}),
    "turn.start": data(
        {
            "turn_id": AGENT_ID,
            "message_ids": st.lists(AGENT_ID, max_size=2),
            "provider": WORD,
            "attempt": st.integers(1, 3),
        }
    ),
    "block": data({"turn_id": st.none() | AGENT_ID, "block": blocks()}),
    "turn.complete": data(
        {
            "turn_id": AGENT_ID,
            "response": TEXT,
            "stop_reason": st.none() | TEXT,
            "usage": st.none() | USAGE,
        },
        cost_usd=COST,
    ),
    "turn.error": data(
        {"turn_id": AGENT_ID, "kind": WORD, "message": TEXT}, usage=USAGE, cost_usd=COST
    ),
    "turn.aborted": data({"turn_id": AGENT_ID, "reason": WORD}, usage=USAGE, cost_usd=COST),
    "abort.requested": data({"turn_id": AGENT_ID, "reason": WORD}, message=TEXT),
    "abort.cleared": data({"turn_id": AGENT_ID}),
    "outgoing": data(
        {
            "message_id": AGENT_ID,
            "connector": WORD,
            "userId": TEXT,
            "channelId": WORD,
            "text": TEXT,
            "in_reply_to": st.none() | AGENT_ID,
        }
    ),
    "outgoing.delivered": data({"message_id": AGENT_ID}),
    "spawn.requested": data({"child": AGENT_ID, "name": WORD, "turn_id": AGENT_ID}),
    "agent.spawned": data({"child": AGENT_ID, "name": WORD, "status": WORD}, detail=TEXT),
    "spawn.dropped": data({"child": AGENT_ID, "name": WORD, "reason": TEXT}),
    "history.reset": data({}, message=TEXT),
    "native.changed": data({"native": NATIVE}),
    "transcript.synced": data({"files": st.lists(SYNCED, min_size=1, max_size=2)}),
    "workspace.captured": data(
        {
            "cwd": TEXT,
            "files": st.integers(0, 9),
            "size": st.integers(0, 9),
            "sha256": st.just("0" * 64),
            "skipped": st.lists(TEXT, max_size=2),
        }
    ),
    "profile.applied": data(
        {
            "profile": WORD,
            "cwd": TEXT,
            "files": st.lists(
                st.fixed_dictionaries({"path": WORD, "sha256": st.just("0" * 64)}), max_size=2
            ),
            "skipped": st.lists(TEXT, max_size=2),
        }
    ),
    "provider.fallback": data(
        {
            "turn_id": AGENT_ID,
            "from": WORD,
            "to": WORD,
            "reason": TEXT,
            "attempt": st.integers(2, 3),
        }
    ),
    "hook.failed": data({"hook": WORD, "message": TEXT}),
    "agent.renamed": data({"name": WORD}),
    "agent.tagged": data({"tags": st.lists(WORD, max_size=2, unique=True)}),
    "agent.set": data({"values": SETTINGS}),
    "props.set": data({"props": VALUES}),
    "data.set": data({"scope": st.sampled_from(["com", "data"]), "values": VALUES}),
    "timeline.set": data({"entries": ENTRIES}),
    "runner.initialized": data({"name": WORD}),
    "runner.restored": data({"name": WORD}),
    "restore": data({}, notice=TEXT),
}


def test_every_event_is_tried() -> None:
    """An event that is new must be given data here."""
    assert tuple(EVENT_DATA) == tuple(EVENTS)


@pytest.mark.parametrize("event", EVENTS)
def test_a_record_is_valid(event: str) -> None:
    """As `encode_record` writes it, and so is the line of history that comes of it."""

    @settings(max_examples=40, deadline=None)
    @given(EVENT_DATA[event], TIME, SESSION_ID)
    def records(content: dict[str, Any], ts: str, session_id: str) -> None:
        record = Record(1, ts, event, session_id, content, NO_LINE)
        assert undeclared("event", orjson.loads(encode_record(record))) == []
        if line := derived.history_line(record):
            assert undeclared("history-entry", orjson.loads(line)) == []

    records()


@settings(max_examples=150, deadline=None)
@given(blocks(), WORD, TEXT, st.dictionaries(TEXT, JSON, max_size=2))
def test_blocks_and_stream_events_are_valid(
    block: dict[str, Any], handle: str, delta: str, updates: dict[str, Any]
) -> None:
    """What the makers of blocks and events return keeps the schemas."""
    check_block(block)
    assert undeclared("block", block) == []
    conversation = block["conversationId"]
    for event in (
        block_start(handle, block),
        block_complete(handle, block),
        text_delta(handle, delta, conversation),
        block_update(handle, updates, conversation),
        metadata_update({"usage": no_usage(), "stopReason": delta}, conversation),
    ):
        assert undeclared("stream-event", event) == []


@settings(deadline=None)
@given(USAGE, USAGE, JSON)
def test_usage_is_valid_whatever_a_client_says(left: Any, right: Any, said: Any) -> None:
    """Made, summed and taken from foreign words."""
    for made in (left, add_usage(left, as_usage(right) or no_usage())):
        assert undeclared("usage", made) == []
    if (taken := as_usage(said)) is not None:
        assert undeclared("usage", taken) == []


@pytest.mark.parametrize("kind", FINDINGS)
def test_findings_are_valid(kind: str) -> None:
    """Each kind, with and without a place: in a report, and as a line of `validate`."""
    for found in (Finding(kind, "f", "m"), Finding(kind, "f", "m", 1, 0, 3, "/a")):
        assert undeclared("finding", found.as_json()) == []
        assert undeclared("problem", found.as_problem()) == []


@st.composite
def agent_states(draw: st.DrawFn) -> AgentState:
    """Return a state such as a fold can come to."""
    session = SessionRecord(
        draw(SESSION_ID),
        SessionState(draw(STATES)),
        draw(WORD),
        draw(TEXT),
        draw(TIME),
    )
    if session.state is SessionState.SUSPENDED:
        session.suspended_at, session.provider_state = draw(TIME), draw(st.binary(max_size=9))
    pending = st.fixed_dictionaries(
        {
            "messageId": AGENT_ID,
            "sender": WORD,
            "kind": WORD,
            "content": PARTS,
            "replyTo": st.none() | AGENT_ID,
            "enqueuedAt": TIME,
        }
    )
    numbers = st.integers(1, 10**6)
    waiting = st.builds(Waiting, pending, numbers, COUNT)
    turn = st.fixed_dictionaries(
        {
            "turnId": AGENT_ID,
            "messageIds": st.lists(AGENT_ID, max_size=2),
            "attempt": st.integers(1, 3),
            "startedAt": TIME,
            "ended": st.none() | OUTCOME,
            "aborted": st.booleans(),
            "deferred": st.lists(
                st.fixed_dictionaries({"child": AGENT_ID, "name": WORD}), max_size=2
            ),
        }
    )
    files = draw(st.lists(SYNCED, max_size=2))
    return AgentState(
        agent_id=draw(AGENT_ID),
        session=session,
        architecture=draw(WORD),
        descriptor=draw(DESCRIPTOR),
        native=draw(NATIVE),
        settings=draw(st.dictionaries(st.sampled_from(["systemPrompt", "permissionMode"]), TEXT)),
        budget=draw(BUDGET),
        props=draw(VALUES),
        com_state=draw(VALUES),
        data_cache=draw(VALUES),
        runner=draw(TEXT),
        name=draw(st.none() | WORD),
        title=draw(st.none() | TEXT),
        last_activity=draw(st.none() | TIME),
        pending=Inbox(draw(st.lists(waiting, max_size=HEAD + 2))),
        open_turn=draw(st.none() | turn),
        transcripts={file.pop("path"): {**file, "native": draw(WORD)} for file in files},
        usage=draw(USAGE),
        cost=draw(st.none() | COST),
        position=Position(draw(COUNT), draw(COUNT), NO_LINE, draw(COUNT), draw(COUNT)),
        history_size=draw(COUNT),
    )


@settings(max_examples=60, deadline=None)
@given(agent_states())
def test_derived_documents_are_valid(state: AgentState) -> None:
    """session.json, state.json, the manifest and descriptor.json of any state."""
    for kind, document in (
        ("session", state.session.to_json()),
        ("state", derived.state_document(state)),
        ("manifest", derived.manifest_document(state)),
        ("descriptor", state.descriptor),
    ):
        assert undeclared(kind, orjson.loads(derived.encode_document(document))) == []


class FixedIds:
    """Ids in sequence, so that an example is the same each time."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def agent(self) -> str:
        """Return the next agent id."""
        return f"id{next(self._numbers):022d}"

    def session(self) -> str:
        """Return the next session id."""
        return f"{next(self._numbers):032x}"


SCRIPT = st.lists(
    st.one_of(
        blocks().map(lambda block: block_complete(block["id"], block)),
        blocks().map(lambda block: block_start(block["id"], block)),
        st.just({"type": "turn"}),
        st.just({"type": "error", "kind": "rate-limited", "message": "later"}),
        JSON.map(lambda said: metadata_update({"usage": said, "stopReason": said}, "main")),
    ),
    max_size=4,
)
STEPS = st.lists(
    st.one_of(st.sampled_from(["suspend", "resume", "restore", "crash"]), PARTS), max_size=5
)


@pytest.mark.feature("S-04")
@settings(max_examples=15, deadline=None)
@given(SCRIPT, STEPS)
def test_a_whole_agent_is_valid_whatever_happens_to_it(script: Any, steps: list[Any]) -> None:
    """Turns, failures, suspensions and crashes leave a directory that `validate` has no word for.

    So are all the documents that commands print about it.
    """
    with tempfile.TemporaryDirectory() as folder:
        play = Path(folder, "talk.jsonl")
        play.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in script))
        services = Services(
            Layout(Path(folder, "root")),
            lambda: "2026-01-02T03:04:05Z",
            lambda _: None,
            FixedIds(),
            Disk(),
            lambda: None,
        )
        for provider in ("echo", "script"):
            options = {"file": "talk.jsonl"} if provider == "script" else {}
            wanted = NewAgent(
                provider=provider, cwd=folder, login="me", name=provider, options=options
            )
            paths = services.layout.agent(create_agent(services, wanted))
            for step in steps:
                take(services, paths, step)
            outputs_are_valid(services, paths)
            assert [str(p) for p in validate([paths.folder]) if p.is_damage] == []
        assert [str(p) for p in validate([services.layout.root]) if p.is_damage] == []


def take(services: Services, paths: Any, step: Any) -> None:
    """Take one step in an agent's life, if its state allows it."""
    state = read_agent(paths).state.session.state
    if isinstance(step, list):
        with suppress(ProviderError):
            result = send(services, paths, step, events_are_valid)
            assert undeclared("turn-result", result.as_json()) == []
    elif step == "suspend" and state is SessionState.ACTIVE:
        with suppress(ProviderError):
            suspend(services, paths)
    elif step == "resume" and state is SessionState.SUSPENDED:
        resume(services, paths)
    elif step == "restore":
        assert undeclared("restored", restore_agent(services, paths).as_json()) == []
    elif step == "crash":
        died = {
            "turn_id": services.ids.agent(),
            "message_ids": [],
            "provider": "echo",
            "attempt": 1,
        }
        message = {"message_id": services.ids.agent(), "sender": "cli", "kind": "user"}
        with write_agent(paths) as writer:
            if writer.state.open_turn is not None:
                return
            content = {"content": [{"type": "text", "text": "x"}]}
            writer.append("message.enqueued", {**message, **content}, services.now())
            died["message_ids"] = [message["message_id"]]
            writer.append("turn.start", died, services.now())


def events_are_valid(event: Any) -> None:
    """Check what `send --events` would print; what a client says in metadata is its own."""
    if event["type"] != "metadata_update":
        assert undeclared("stream-event", event) == []


def outputs_are_valid(services: Services, paths: Any) -> None:
    """Check every document that commands print about an agent."""
    reading = read_agent(paths)
    assert undeclared("session-list", lookup.list_row(paths, reading.state)) == []
    timeline = Timeline(paths)
    seen = lookup.inspection(paths, reading) | inspection(timeline).as_json()
    assert undeclared("inspection", seen) == []
    kept = snapshot(timeline, services.now())
    assert undeclared("session-snapshot", kept) == []
    assert check_snapshot(kept) is kept
    saved = saved_session(paths, reading.state)
    saved["files"] = file_entries(saved_files(services.layout, paths, reading).files)
    assert undeclared("session-saved", printed(saved)) == []
    assert (
        undeclared(
            "session-runtime", printed(runtime_session(services.layout, paths, reading.state))
        )
        == []
    )
    for event in replay(paths, lambda _: None):
        assert undeclared("stream-event", event) == []
    stored = [Source(path.name, path=path) for path in paths.transcripts.glob("*-*.jsonl")]
    report = ParseReport("all")
    found = find_sessions(stored, "auto", lambda _: None)
    for line in b"".join(parse_all(found, report, hidden=True)).splitlines():
        assert undeclared("block", orjson.loads(line)) == []
    assert undeclared("parse-report", report.as_json()) == []
