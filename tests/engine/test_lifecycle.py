"""Suspending, resuming, restoring."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agentsdir.engine.close import archive_agent
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import MAX_BLOB, resume, suspend
from agentsdir.formats.errors import Busy, SessionStateError
from agentsdir.formats.store import locks
from agentsdir.schemas import check


def bring(stage: Any, state: str) -> Any:
    """Return an agent in one of the four states."""
    paths = stage.new()
    if state in ("active", "suspended"):
        stage.send(paths)
    if state == "suspended":
        suspend(stage.services, paths)
    if state == "terminated":
        change = {"from": "created", "to": "terminated", "reason": "close"}
        stage.append(paths, "session.state", change)
    return paths


MATRIX = [
    ("suspend", "created", None),
    ("suspend", "active", "suspended"),
    ("suspend", "suspended", None),
    ("suspend", "terminated", None),
    ("resume", "created", "active"),
    ("resume", "active", None),
    ("resume", "suspended", "active"),
    ("resume", "terminated", None),
    ("restore", "created", "created"),
    ("restore", "active", "suspended"),
    ("restore", "suspended", "suspended"),
    ("restore", "terminated", "terminated"),
    ("send", "created", "active"),
    ("send", "active", "active"),
    ("send", "suspended", "active"),
    ("send", "terminated", None),
]


@pytest.mark.feature("S-01", "C-03", "C-04", "C-05")
@pytest.mark.parametrize(("verb", "before", "after"), MATRIX)
def test_each_verb_in_each_state_does_what_the_matrix_says(
    stage: Any, verb: str, before: str, after: str | None
) -> None:
    """A transition, or an error that names both states and records nothing."""
    paths = bring(stage, before)
    log = paths.log.read_bytes()
    act = {
        "suspend": lambda: suspend(stage.services, paths),
        "resume": lambda: resume(stage.services, paths),
        "restore": lambda: restore_agent(stage.services, paths),
        "send": lambda: stage.send(paths),
    }[verb]
    if after is None:
        with pytest.raises(SessionStateError) as refused:
            act()
        assert before in refused.value.message
        assert ("suspended" if verb == "suspend" else "active") in refused.value.message
        assert paths.log.read_bytes() == log
        return
    act()
    assert stage.state(paths).session.state == after
    assert json.loads(paths.session.read_bytes())["state"] == after
    if before == after and verb == "restore":
        assert paths.log.read_bytes() == log


@pytest.mark.feature("S-01", "S-03")
def test_suspending_keeps_the_providers_blob_in_the_session_record(stage: Any) -> None:
    """Until the session is taken up again."""
    paths = bring(stage, "suspended")
    document = json.loads(paths.session.read_bytes())
    assert base64.b64decode(document["provider_state"]) == b'{"turns":1}'
    assert document["suspended_at"] == stage.log(paths)[-1]["ts"]
    resume(stage.services, paths)
    document = json.loads(paths.session.read_bytes())
    assert (document["provider_state"], document["suspended_at"]) == ("", None)


def test_a_blob_over_the_limit_is_left_out_and_not_missed(stage: Any, plugin: Any) -> None:
    """It is only ever a short cut."""
    plugin("big", suspend=f"return b'x' * {MAX_BLOB + 1}")
    paths = stage.new(provider="big")
    stage.send(paths)
    assert suspend(stage.services, paths).session.provider_state == b""
    assert stage.send(paths).outcome == "completed"


@pytest.mark.parametrize("where", ["suspend", "restore"])
def test_a_provider_that_raises_does_not_keep_a_session_in_use(
    stage: Any, plugin: Any, where: str
) -> None:
    """It is suspended without a blob, which is only a short cut."""
    raising = "raise ValueError('x')"
    plugin("sulking", **{where: raising if where == "suspend" else "if state == b'' and "
                         "spec.transcripts: raise ValueError('x')"})  # fmt: skip
    paths = stage.new(provider="sulking")
    stage.send(paths)
    session = suspend(stage.services, paths).session
    assert (session.state, session.provider_state) == ("suspended", b"")


@pytest.mark.parametrize("verb", [suspend, resume])
def test_a_turn_that_runs_is_not_disturbed(stage: Any, verb: Any) -> None:
    """The verb says who is busy."""
    paths = bring(stage, "active")
    with locks.hold(paths.turn), pytest.raises(Busy, match=paths.id):
        verb(stage.services, paths)


def crash(stage: Any, paths: Any, upto: str) -> None:
    """Leave the log as a process does that dies right after the event `upto`."""
    message = stage.enqueue(paths, "doomed")
    turn = stage.ids.agent()
    start = {"turn_id": turn, "message_ids": [message], "provider": "echo", "attempt": 1}
    stage.append(paths, "turn.start", start)
    done = {"turn_id": turn, "response": "", "stop_reason": "end_turn", "usage": None}
    ends = {
        "turn.complete": done,
        "turn.error": {"turn_id": turn, "kind": "k", "message": "m"},
        "turn.aborted": {"turn_id": turn, "reason": "interrupt"},
    }
    if upto in ends:
        stage.append(paths, upto, ends[upto])


@pytest.mark.feature("C-05")
@pytest.mark.parametrize(
    ("upto", "added", "outcome"),
    [
        ("turn.start", ["turn.aborted", "message.delivered", "session.state"], "failed"),
        ("turn.complete", ["message.delivered", "session.state"], "completed"),
        ("turn.error", ["message.delivered", "session.state"], "failed"),
        ("turn.aborted", ["message.delivered", "session.state"], "aborted"),
    ],
)
def test_restoring_ends_what_a_crash_left_open_once(
    stage: Any, upto: str, added: list[str], outcome: str
) -> None:
    """Aborted as a crash where there was no end; settled with what its end says."""
    paths = bring(stage, "active")
    crash(stage, paths, upto)
    before = stage.events(paths)
    restored = restore_agent(stage.services, paths)
    assert stage.events(paths) == before + added
    assert restored.state == "suspended"
    assert not restored.lossy
    settled = next(e for e in reversed(stage.log(paths)) if e["event"] == "message.delivered")
    assert settled["data"]["outcome"] == outcome
    if upto == "turn.start":
        aborted = next(e for e in reversed(stage.log(paths)) if e["event"] == "turn.aborted")
        assert aborted["data"]["reason"] == "crash"
    tree = stage.tree()
    again = restore_agent(stage.services, paths)
    assert again.actions == ()
    assert stage.tree() == tree


@pytest.mark.parametrize("verb", ["send", "suspend", "resume", "archive"])
def test_a_writing_verb_first_ends_an_open_turn_that_no_process_holds(
    stage: Any, verb: str
) -> None:
    """Without a restore in between."""
    paths = bring(stage, "active")
    crash(stage, paths, "turn.start")
    if verb == "send":
        assert stage.send(paths, "alive").response == "alive"
    elif verb == "suspend":
        suspend(stage.services, paths)
    elif verb == "archive":
        archive_agent(stage.services, paths)
        paths = stage.services.layout.agent(paths.id, archived=True)
    else:
        with pytest.raises(SessionStateError):
            resume(stage.services, paths)
    aborted = [e["data"] for e in stage.log(paths) if e["event"] == "turn.aborted"]
    assert [entry["reason"] for entry in aborted] == ["crash"]
    assert stage.state(paths).open_turn is None


def test_an_agent_whose_turn_runs_is_passed_over(stage: Any) -> None:
    """It is not suspended under its holder's hands."""
    paths = bring(stage, "active")
    tree = stage.tree()
    with locks.hold(paths.turn):
        restored = restore_agent(stage.services, paths)
    assert restored.actions == ("left alone: a living process holds it",)
    assert not restored.lossy
    assert stage.tree() == tree


@pytest.mark.parametrize("name", ["session.json", "state.json", "history.jsonl", "descriptor.json"])
def test_restoring_says_which_derived_files_it_rebuilt(stage: Any, name: str) -> None:
    """And writes no others."""
    paths = bring(stage, "suspended")
    whole = stage.tree()
    (paths.folder / name).unlink()
    assert restore_agent(stage.services, paths).actions == (f"rebuilt {name}",)
    assert stage.tree() == whole


@pytest.mark.feature("S-02")
def test_each_transition_replaces_the_session_record_as_a_whole(stage: Any) -> None:
    """A reader that has the old file open reads its record to the end; no other file is left."""
    paths = stage.new()
    steps = [
        lambda: stage.send(paths),
        lambda: suspend(stage.services, paths),
        lambda: resume(stage.services, paths),
        lambda: restore_agent(stage.services, paths),
        lambda: stage.send(paths),
    ]
    found = []
    for step in steps:
        with paths.session.open("rb") as reader:
            before, old = paths.session.read_bytes(), paths.session.stat().st_ino
            step()
            assert reader.read() == before
        assert paths.session.stat().st_ino != old
        document = json.loads(paths.session.read_bytes())
        assert check("session", document) == []
        found.append(document["state"])
    assert found == ["active", "suspended", "active", "suspended", "active"]
    assert not list(paths.folder.glob(".tmp-*"))
