"""The fold: what an agent is, from its log alone."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.formats.findings import FINDINGS
from agentsdir.formats.store import derived
from agentsdir.formats.store.agent import history_pieces, read_agent, write_agent, wrong_files
from agentsdir.formats.store.events import BROKEN, EVENTS, apply, begin, message_of, title_of
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.log import Record
from agentsdir.formats.store.state import AgentState, Run, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden" / "agent"
TS = "2026-01-02T03:04:05.000000Z"
CREATED = json.loads((GOLDEN / "events.jsonl").read_bytes().splitlines()[0])

MESSAGES = [f"m{n}" for n in range(4)]
USAGE = {
    "inputTokens": 1,
    "outputTokens": 2,
    "cacheReadTokens": 3,
    "cacheWriteTokens": 4,
    "totalTokens": 10,
    "exact": True,
}
message = st.sampled_from(MESSAGES)
child = st.sampled_from(["child1", "child2"])
turn = st.sampled_from(["t", "other"])
values = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([None, 1, {"deep": None}]))


def data(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return data of an event with these fields."""
    return st.fixed_dictionaries(fields)


def one(value: Any) -> st.SearchStrategy[Any]:
    """Return nothing but a value."""
    return st.just(value)


def content() -> st.SearchStrategy[list[dict[str, str]]]:
    """Return a message of one text."""
    return st.text(max_size=5).map(lambda text: [{"type": "text", "text": text}])


# Data for each event that changes the state, so alike that records meet each other's ids.
DATA = {
    "session.state": data(
        to=st.sampled_from(["active", "suspended", "terminated"]),
        provider_state=st.sampled_from(["", "YmxvYg=="]),
        **{"from": one("?"), "reason": one("")},
    ),
    "message.enqueued": data(
        message_id=message, sender=one("cli"), content=content(),
        kind=st.sampled_from(["user", "system"]),
    ),
    "message.delivered": data(message_id=message, outcome=one("completed")),
    "message.sent": data(message_id=message, to=child, turn_id=turn),
    "message.unsent": data(
        to=child,
        message=data(message_id=message, sender=one("x"), kind=one("system"), content=content()),
    ),
    "message.resent": data(message_id=message, outcome=one("sent")),
    "turn.start": data(
        turn_id=turn, message_ids=st.lists(message, min_size=1, max_size=1),
        provider=one("echo"), attempt=one(1),
    ),
    "block": data(turn_id=one(None), block=data(id=one("b"), superseded=st.booleans())),
    "turn.complete": data(
        turn_id=turn, response=one(""), stop_reason=one("end_turn"),
        usage=st.sampled_from([None, USAGE]),
    ),
    "turn.error": data(turn_id=turn, kind=one("k"), message=one("m")),
    "turn.aborted": data(turn_id=turn, reason=st.sampled_from(["crash", "interrupt"])),
    "abort.requested": data(turn_id=turn, reason=one("interrupt")),
    "abort.cleared": data(turn_id=turn),
    "outgoing": data(message_id=message, connector=one("c"), text=one("hi")),
    "outgoing.delivered": data(message_id=message),
    "spawn.requested": data(child=child, name=one("n"), turn_id=turn),
    "agent.spawned": data(
        child=child, name=one("n"), status=st.sampled_from(["running", "completed", "failed"])
    ),
    "spawn.dropped": data(child=child, name=one("n"), reason=one("")),
    "history.reset": data(message=one("start over")),
    "native.changed": data(native=data(architecture=one("new"), id=one("n"), cwd=one("/"))),
    "transcript.synced": data(
        files=data(
            path=one("a.jsonl"), role=one("main"), size=st.integers(0, 9), sha256=one("0" * 64)
        ).map(lambda file: [file])
    ),
    "agent.renamed": data(name=st.sampled_from(["", "Ada"])),
    "agent.tagged": data(tags=st.lists(st.sampled_from(["a", "b"]), unique=True)),
    "agent.set": data(
        values=st.fixed_dictionaries(
            {},
            optional={
                "cwd": one("/elsewhere"),
                "model": st.sampled_from(["", "small"]),
                "system_prompt": st.sampled_from(["", "Be brief."]),
                "permission_mode": st.sampled_from(["", "plan"]),
                "fallbacks": st.lists(one("echo"), max_size=1),
                "budget": st.dictionaries(
                    st.sampled_from(["tokens", "cost", "new"]), st.integers(0, 3)
                ),
            },
        )
    ),
    "props.set": data(props=values),
    "data.set": data(scope=st.sampled_from(["com", "data", "new"]), values=values),
    "timeline.set": data(entries=one([])),
    "runner.initialized": data(name=st.sampled_from(["repl", ""])),
    "runner.restored": data(name=one("another")),
}  # fmt: skip
EVENT = st.one_of(
    *(st.tuples(one(event), payload) for event, payload in DATA.items()),
    one(("restore", {"notice": "x"})),
    one(("future.event", {"anything": [1]})),
)


def test_every_event_that_changes_the_state_is_folded_here() -> None:
    """A new one needs data above."""
    assert DATA.keys() == {
        event
        for event, row in EVENTS.items()
        if row.step is not None and event != "session.created"
    }


def record(seq: int, event: str, data: dict[str, Any]) -> Record:
    """Return a record with fixed surroundings."""
    return Record(seq, TS, event, CREATED["session_id"], data, "0" * 16)


def first() -> AgentState:
    """Return the state of a new agent."""
    return begin(record(1, "session.created", copy.deepcopy(CREATED["data"])))


def through_state_json(
    state: AgentState, events: list[tuple[str, dict[str, Any]]] | tuple[()] = ()
) -> AgentState:
    """Write a state to state.json's bytes and read it back.

    Args:
        events: what was folded into it; the number of one stands for its place in the log.
    """

    def read(run: Run) -> Iterator[Waiting]:
        number = run.first
        for at, (event, payload) in enumerate(events[run.offset :], run.offset):
            message = message_of(record(at + 2, event, copy.deepcopy(payload)))
            if message is not None and number < run.first + run.messages:
                yield Waiting(message, number, at)
                number += 1

    return derived.state_from_bytes(derived.derived_document(state, "state.json"), read)


@pytest.mark.feature("S-04")
@settings(max_examples=300)
@given(st.lists(EVENT, max_size=20))
def test_folding_on_from_state_json_equals_folding_from_the_start(
    events: list[tuple[str, dict[str, Any]]],
) -> None:
    """At every prefix: nothing the fold goes on from is missing in state.json but the blob."""
    whole = first()
    resumed = first()
    for number, (event, payload) in enumerate(events):
        resumed = through_state_json(resumed, events[:number])
        apply(whole, record(number + 2, event, copy.deepcopy(payload)), number)
        apply(resumed, record(number + 2, event, copy.deepcopy(payload)), number)
        assert derived.state_document(resumed) == derived.state_document(whole)


@given(st.lists(EVENT, max_size=12))
def test_the_counters_and_the_inbox_are_never_less_than_empty(
    events: list[tuple[str, dict[str, Any]]],
) -> None:
    """Whatever order a log holds, also one that no writer of ours makes."""
    state = first()
    for number, (event, payload) in enumerate(events):
        apply(state, record(number + 2, event, copy.deepcopy(payload)), 0)
    assert all(count >= 0 for count in state.counters.values())
    assert state.counters["messages"] == sum(event == "message.enqueued" for event, _ in events)
    assert state.counters["turns"] == sum(event == "turn.start" for event, _ in events)


def test_events_that_are_not_known_change_nothing() -> None:
    """A newer program may have written them."""
    state, untouched = first(), first()
    for event in ("future.event", "restore", "hook.failed", ""):
        apply(state, record(2, event, {"anything": 1}), 0)
    assert state == untouched


def test_a_message_waits_until_a_turn_takes_it_and_the_turn_until_it_is_settled(
    one_turn: Any,
) -> None:
    """Pending, then open, then ended, then nothing."""
    seen = []
    state = first()
    for number, (event, data) in enumerate(one_turn(1)):
        apply(state, record(number + 2, event, data), 0)
        turn = state.open_turn
        seen.append((event, len(state.pending), turn and (turn["ended"] or "open")))
    assert [entry for entry in seen if entry[0] not in ("block", "transcript.synced")] == [
        ("message.enqueued", 1, None),
        ("session.state", 1, None),
        ("turn.start", 0, "open"),
        ("turn.complete", 0, "completed"),
        ("message.delivered", 0, None),
    ]
    assert state.counters == {"turns": 1, "failedTurns": 0, "messages": 1, "blocks": 2}
    assert state.usage["totalTokens"] == 3
    assert state.last_activity == TS
    assert state.title == "say 1"


@pytest.mark.parametrize(
    ("event", "data", "ended"),
    [
        ("turn.error", {"turn_id": "t", "kind": "k", "message": "m"}, "failed"),
        ("turn.aborted", {"turn_id": "t", "reason": "crash"}, "failed"),
        ("turn.aborted", {"turn_id": "t", "reason": "interrupt"}, "aborted"),
    ],
)
def test_a_turn_that_did_not_complete_counts_as_failed(
    event: str, data: dict[str, Any], ended: str, one_turn: Any
) -> None:
    """And says with which outcome its message is to be settled."""
    state = first()
    for number, (kind, payload) in enumerate(one_turn(1)[:3]):
        apply(state, record(number + 2, kind, payload), 0)
    apply(state, record(9, event, data), 0)
    assert state.open_turn is not None
    assert state.open_turn["ended"] == ended
    assert state.counters["failedTurns"] == 1


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("hello", "hello"),
        ("  first \n second", "first"),
        ("x" * 500, "x" * 120),
        ("\n\n", None),
        ("a\u2028b", "a"),
    ],
)
def test_the_title_is_the_first_line_of_the_first_prompt(text: str, title: str | None) -> None:
    """Shortened; images and blank texts have none."""
    image = {"type": "image", "source": {"type": "url", "data": "x"}}
    assert title_of([image, {"type": "text", "text": text}]) == title


MALFORMED = [
    ("session.state", {}),
    ("session.state", {"to": "asleep"}),
    ("session.state", {"to": "suspended", "provider_state": "not base64!"}),
    ("session.state", {"to": "suspended", "provider_state": 5}),
    ("message.enqueued", {"message_id": "m"}),
    ("message.enqueued", {"message_id": "m", "sender": "", "kind": "user", "content": "text"}),
    ("message.enqueued", {"message_id": "m", "sender": "", "kind": "user", "content": None}),
    ("turn.start", {"turn_id": "t", "message_ids": None, "attempt": 1}),
    ("turn.start", {"turn_id": "t", "message_ids": [{}], "attempt": 1}),
    ("turn.start", {"turn_id": "t", "message_ids": ["mess00000000000000000002"]}),
    ("turn.error", {"turn_id": "open", "usage": [1]}),
    ("spawn.requested", {"child": "c", "name": "n"}),
    ("turn.complete", {"usage": {"inputTokens": "many"}}),
    ("turn.complete", {"usage": [1]}),
    ("turn.aborted", {}),
    ("message.delivered", {}),
    ("block", {}),
    ("block", {"block": None}),
    ("native.changed", {"native": 7}),
    ("transcript.synced", {"files": [{}]}),
    ("transcript.synced", {"files": 3}),
]


@pytest.mark.parametrize(("event", "data"), MALFORMED, ids=lambda value: str(value)[:40])
def test_malformed_data_gives_a_finding_and_no_exception(
    agents: Any, event: str, data: dict[str, Any]
) -> None:
    """The log is read to its end, from the start and from state.json, with the same result.

    The record changes nothing, not even in part.
    """
    paths = agents.publish()
    agents.talk(paths)
    open_turn = {"turn_id": "open", "message_ids": ["m"], "provider": "echo", "attempt": 1}
    agents.append(paths, "turn.start", open_turn)
    before = read_agent(paths).state
    position = before.position
    from agentsdir.formats.store.log import append_record

    append_record(paths.log, position, event, data, TS, agents.session, Disk())
    tail = read_agent(paths)
    whole = read_agent(paths, whole=True)
    place = (position.lines + 1, position.size, paths.log.stat().st_size - position.size)
    assert [(f.id, f.line, f.offset, f.length) for f in whole.findings] == [("bad-data", *place)]
    assert [f.id for f in tail.findings] == ["bad-data"]
    assert derived.state_document(tail.state) == derived.state_document(whole.state)
    assert replace(whole.state, position=position) == before
    agents.append(paths, "history.reset", {})
    assert paths.history.read_bytes() == b"".join(history_pieces(paths))


@pytest.mark.feature("G-01", "G-02", "S-01")
@pytest.mark.parametrize("name", ["descriptor.json", "session.json", "state.json", "history.jsonl"])
def test_a_derived_file_of_a_known_history_is_the_golden_one(agents: Any, name: str) -> None:
    """Byte for byte."""
    paths = agents.publish()
    agents.talk(paths, 2)
    assert (paths.folder / name).read_bytes() == (GOLDEN / name).read_bytes()


def test_the_manifest_of_a_known_history_is_the_golden_one(agents: Any) -> None:
    """Byte for byte."""
    paths = agents.publish()
    agents.talk(paths, 2)
    written = (paths.transcripts / "manifest.json").read_bytes()
    assert written == (GOLDEN / "manifest.json").read_bytes()


@pytest.mark.feature("S-01", "S-03")
def test_the_session_record_of_a_suspended_session_holds_the_blob(agents: Any) -> None:
    """In base64; it goes when the session is taken up again."""
    paths = agents.publish()
    agents.append(paths, "session.state", {"from": "created", "to": "active", "reason": "x"})
    suspended = {"from": "active", "to": "suspended", "reason": "x", "provider_state": "YmxvYg=="}
    record = agents.append(paths, "session.state", suspended)
    assert json.loads(paths.session.read_bytes()) == {
        "id": agents.session,
        "state": "suspended",
        "provider_name": "echo",
        "model": "echo-1",
        "created_at": "2026-01-02T03:00:01.000000Z",
        "suspended_at": record.ts,
        "provider_state": "YmxvYg==",
    }
    agents.append(paths, "session.state", {"from": "suspended", "to": "active", "reason": "x"})
    document = json.loads(paths.session.read_bytes())
    assert (document["provider_state"], document["suspended_at"]) == ("", None)


@pytest.mark.feature("G-02", "G-03")
def test_history_begins_anew_at_each_marker(agents: Any) -> None:
    """A start marker, blocks, a reset marker, blocks; context is what follows the last one."""
    paths = agents.publish()
    agents.talk(paths)
    agents.append(paths, "history.reset", {"message": "start over"})
    for event, data in agents_turn(agents):
        agents.append(paths, event, data)
    entries = [orjson.loads(line) for line in paths.history.read_bytes().splitlines()]
    assert [entry["type"] for entry in entries] == [
        "start",
        "user_message",
        "assistant_text",
        "reset",
        "user_message",
        "assistant_text",
    ]
    assert entries[0] == {"type": "start", "at": "2026-01-02T03:00:01.000000Z", "seq": 1}
    assert entries[3]["message"] == "start over"
    last = max(n for n, entry in enumerate(entries) if entry["type"] in ("start", "reset"))
    assert [entry["content"] for entry in entries[last + 1 :]] == ["say 2", "yes"]


def agents_turn(agents: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the second turn's events."""
    del agents
    lines = (GOLDEN / "events.jsonl").read_bytes().splitlines()[9:]
    return [(entry["event"], entry["data"]) for entry in map(orjson.loads, lines)]


def prefixes(agents: Any, tmp_path: Path) -> Any:
    """Publish the same agent again and again, one event longer each time."""
    events = [(e, d) for e, d in agents_turn(agents)]
    for length in range(len(events) + 1):
        copy_of = type(agents)(Layout(tmp_path / str(length)))
        paths = copy_of.publish()
        copy_of.talk(paths)
        for event, data in events[:length]:
            copy_of.append(paths, event, data)
        yield paths


def test_what_was_appended_to_equals_what_is_rebuilt_after_every_event(
    agents: Any, tmp_path: Path
) -> None:
    """history.jsonl at once; the documents by a rebuild that changes nothing."""
    for paths in prefixes(agents, tmp_path):
        assert paths.history.read_bytes() == b"".join(history_pieces(paths))
        assert rebuild(paths) == []
        assert rebuild(paths) == []


def rebuild(paths: AgentPaths) -> list[str]:
    """Write what is not as the log says, and return its names."""
    with write_agent(paths, whole=True) as writer:
        wrong = wrong_files(paths, writer.state)
        for name in wrong:
            writer.rebuild(name)
    return wrong


DERIVED = ("descriptor.json", "session.json", "state.json", "history.jsonl")
MANIFEST = "transcripts/manifest.json"
SUBSETS = [
    [name for bit, name in enumerate((*DERIVED, MANIFEST)) if number >> bit & 1]
    for number in range(1, 32)
]


@pytest.mark.parametrize("how", ["deleted", "emptied", "garbage", "stale"])
@pytest.mark.feature("S-04")
def test_any_set_of_lost_derived_files_comes_back_to_the_byte(agents: Any, how: str) -> None:
    """From the log alone, and only what was lost is written."""
    paths = agents.publish()
    stale = {name: (paths.folder / name).read_bytes() for name in DERIVED}
    agents.talk(paths, 2)
    whole = {name: (paths.folder / name).read_bytes() for name in (*DERIVED, MANIFEST)}
    for subset in SUBSETS if how == "deleted" else [list(whole), *[[name] for name in whole]]:
        for name in subset:
            path = paths.folder / name
            if how == "deleted":
                path.unlink()
            else:
                path.write_bytes({"emptied": b"", "garbage": b"\xff{]"}.get(how, b"{}"))
                if how == "stale" and name in stale:
                    path.write_bytes(stale[name])
        written = rebuild(paths)
        changed = [name for name in subset if how != "stale" or stale.get(name) != whole[name]]
        assert sorted(written) == sorted(changed)
        assert {name: (paths.folder / name).read_bytes() for name in whole} == whole


def test_a_folder_of_transcripts_that_is_gone_does_not_stop_a_rebuild(agents: Any) -> None:
    """What the manifest says comes from the log."""
    paths = agents.publish()
    agents.talk(paths)
    (paths.transcripts / "manifest.json").unlink()
    paths.transcripts.rmdir()
    assert rebuild(paths) == [MANIFEST]


FIELDS = list(derived.state_document(first()))


@pytest.mark.parametrize("field", FIELDS)
def test_a_state_json_with_a_garbage_field_is_passed_over(agents: Any, field: str) -> None:
    """Any value of another type, or none: the log is folded from its start instead."""
    paths = agents.publish()
    agents.talk(paths)
    expected = derived.state_document(read_agent(paths, whole=True).state)
    good = orjson.loads(paths.state.read_bytes())
    garbage: list[Any] = [[], {}, -1, 1.5, True, "?", ["x"], {"a": 1}, [[]]]
    for value in garbage:
        if type(value) is type(good[field]) and isinstance(value, (str, bool)):
            continue  # a well-formed lie cannot be told from the truth
        if value is True or (isinstance(value, str) and good[field] is None):
            continue
        if field == "pending" and value == []:
            continue
        if field in ("native", "descriptor", "transcripts") and isinstance(value, dict):
            continue
        paths.state.write_bytes(orjson.dumps({**good, field: value}))
        reading = read_agent(paths)
        assert derived.state_document(reading.state) == expected, value
        assert reading.findings == ()
    del good[field]
    paths.state.write_bytes(orjson.dumps(good))
    assert derived.state_document(read_agent(paths).state) == expected


def test_a_state_json_from_beyond_the_end_of_the_log_is_passed_over(agents: Any) -> None:
    """The log was cut, or the file is another agent's."""
    paths = agents.publish()
    agents.talk(paths)
    lines = paths.log.read_bytes().splitlines(keepends=True)
    paths.log.write_bytes(b"".join(lines[:4]))
    assert read_agent(paths).state.position.last_seq == 4


@pytest.mark.feature("T-01")
def test_the_descriptor_comes_from_the_first_record_and_from_nowhere_else(agents: Any) -> None:
    """What stands in descriptor.json, or in a later record, does not change it."""
    paths = agents.publish()
    agents.talk(paths)
    who = read_agent(paths).state.descriptor
    paths.descriptor.write_text('{"type":"heartbeat"}')
    agents.append(paths, "session.created", agents.created(descriptor={"type": "heartbeat"}))
    assert read_agent(paths).state.descriptor == who
    assert "descriptor.json" in rebuild(paths)
    assert json.loads(paths.descriptor.read_bytes()) == who


def test_unknown_descriptor_kinds_and_fields_are_kept(agents: Any) -> None:
    """The set of kinds is open."""
    who = {"type": "oracle", "answer": 42, "nested": {"a": [1]}}
    paths = agents.publish(descriptor=who)
    assert read_agent(paths, whole=True).state.descriptor == who
    assert json.loads(paths.descriptor.read_bytes()) == who


def test_every_finding_a_log_can_give_is_a_known_one(agents: Any) -> None:
    """Each has a severity."""
    paths = agents.publish()
    two = paths.log.read_bytes().rstrip() * 2
    with paths.log.open("ab") as log:
        log.write(b"#\n{}\n\xff\n\0\n" + two + b"\ntorn")
    ids = [finding.id for finding in read_agent(paths, whole=True).findings]
    assert ids == ["bad-json", "not-a-record", "bad-utf8", "nul-run", "splice", "torn-tail"]
    assert set(ids) <= set(FINDINGS)
    assert list(chain(ids))


def test_data_is_set_and_removed_value_by_value_and_a_reset_leaves_it() -> None:
    """Props are set whole; a scope that a newer version has changes nothing."""
    state = first()
    for number, (event, payload) in enumerate(
        [
            ("props.set", {"props": {"query": "a", "depth": None}}),
            ("data.set", {"scope": "com", "values": {"step": 1, "draft": "x"}}),
            ("data.set", {"scope": "data", "values": {"step": "page"}}),
            ("runner.initialized", {"name": "repl"}),
            ("data.set", {"scope": "com", "values": {"draft": None, "deep": {"kept": None}}}),
            ("data.set", {"scope": "new", "values": {"step": 9}}),
            ("props.set", {"props": {"query": "b"}}),
            ("timeline.set", {"entries": []}),
            ("runner.restored", {"name": "another"}),
            ("history.reset", {}),
        ]
    ):
        apply(state, record(number + 2, event, payload), 0)
    document = derived.state_document(state)
    assert document["props"] == {"query": "b"}
    assert document["comState"] == {"step": 1, "deep": {"kept": None}}
    assert document["dataCache"] == {"step": "page"}
    assert document["runner"] == "repl"


def test_a_state_without_props_data_and_runner_has_no_such_keys() -> None:
    """Values that are gone leave state.json as it was."""
    state = first()
    before = derived.state_document(state)
    apply(state, record(2, "data.set", {"scope": "com", "values": {"step": 1}}), 0)
    apply(state, record(3, "data.set", {"scope": "com", "values": {"step": None}}), 0)
    apply(state, record(4, "props.set", {"props": {}}), 0)
    assert derived.state_document(state) == before


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("props.set", {"props": []}),
        ("props.set", {}),
        ("data.set", {"values": {}}),
        ("data.set", {"scope": "com", "values": [1]}),
        ("timeline.set", {"entries": {}}),
        ("runner.initialized", {"name": 1}),
        ("runner.restored", {}),
    ],
)
def test_a_record_of_data_that_lacks_what_it_needs_changes_nothing(
    event: str, data: dict[str, Any]
) -> None:
    """It is bad-data."""
    state = first()
    with pytest.raises(BROKEN):
        apply(state, record(2, event, data), 0)
    assert state == first()
