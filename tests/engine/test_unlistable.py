"""Whatever an agent's folder holds, commands over all agents name it and go on to the next."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentsdir.engine.lookup import (
    document_row,
    each_agent,
    find_readable,
    inspection,
    list_row,
    resolve,
)
from agentsdir.engine.recovery import agents_with_unsent
from agentsdir.engine.restore import restore_all
from agentsdir.formats.ids import short_hash
from agentsdir.formats.jsontext import MAX_INT
from agentsdir.formats.store import agent, log
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.derived import encode_document

USAGE = {
    "inputTokens": MAX_INT,
    "outputTokens": 1,
    "cacheReadTokens": 0,
    "cacheWriteTokens": 0,
    "totalTokens": MAX_INT,
    "exact": True,
}


def foreign(paths: Any, event: str, data: dict[str, Any], **envelope: Any) -> None:
    """Append a record that no writer of ours would."""
    last = paths.log.read_bytes().splitlines()[-1]
    record = json.loads(last)
    record |= {"seq": record["seq"] + 1, "event": event, "data": data, "prev": short_hash(last)}
    with paths.log.open("ab") as stream:
        stream.write(json.dumps(record | envelope).encode() + b"\n")


def test_sums_beyond_what_json_holds_stay_at_the_most_and_are_not_exact(stage: Any) -> None:
    """The agent is listed, inspected, restored and sent to; `exact` false means "at least"."""
    paths = stage.new()
    spent = {"turn_id": "t" * 24, "usage": {**USAGE, "thinkingTokens": MAX_INT}, "cost_usd": 10**12}
    for _ in range(2):
        foreign(paths, "turn.complete", spent)

    state = read_agent(paths, whole=True).state

    assert state.usage == {
        **USAGE,
        "outputTokens": 2,
        "thinkingTokens": MAX_INT,
        "exact": False,
    }
    json.dumps([list_row(paths, state), inspection(paths, read_agent(paths, whole=True))])
    assert [one.error for one in restore_all(stage.services, [paths])] == [None]
    assert stage.send(paths, "go on").response == "go on"
    assert stage.state(paths).usage["inputTokens"] == MAX_INT


def test_costs_stay_at_the_most(stage: Any) -> None:
    """A sum of whole dollars is an integer, too."""
    paths = stage.new()
    state = read_agent(paths).state
    state.cost = MAX_INT - 1
    agent.apply(state, log.Record(2, "", "turn.complete", "", {"cost_usd": 10**12}, ""), 0)
    assert state.cost == MAX_INT


@pytest.mark.parametrize(
    "change",
    [{"inputTokens": -1}, {"inputTokens": 2**53}, {"exact": "yes"}, {"thinkingTokens": None}],
)
def test_a_turn_end_whose_usage_cannot_be_counted_has_no_effect_at_all(
    stage: Any, change: dict[str, Any]
) -> None:
    """Neither counters nor cost change, and the finding names the line."""
    paths = stage.new()
    before = read_agent(paths).state
    foreign(paths, "turn.error", {"usage": {**USAGE, **change}, "cost_usd": 1})
    reading = read_agent(paths, whole=True)
    assert [finding.id for finding in reading.findings] == ["bad-data"]
    after = reading.state
    assert (after.usage, after.cost, after.counters) == (
        before.usage,
        before.cost,
        before.counters,
    )


def test_a_seq_beyond_what_json_holds_is_no_record(stage: Any) -> None:
    """The highest one is; nothing can follow it, and the agent is still listed."""
    paths = stage.new()
    foreign(paths, "history.reset", {}, seq=MAX_INT + 1)
    reading = read_agent(paths, whole=True)
    assert [finding.id for finding in reading.findings] == ["not-a-record"]
    foreign(paths, "history.reset", {}, seq=MAX_INT)
    reading = read_agent(paths, whole=True)
    assert reading.state.position.last_seq == MAX_INT
    json.dumps([list_row(paths, reading.state), inspection(paths, reading)])


@pytest.mark.parametrize(
    "change",
    [
        {"limits": {"far": 2**60}},
        {"costUsd": 2**60},
        {"counters": {"turns": 2**60, "failedTurns": 0, "messages": 0, "blocks": 0}},
    ],
)
def test_a_state_json_that_could_not_be_written_again_is_not_believed(
    stage: Any, change: dict[str, Any]
) -> None:
    """Its digest fits: any program can make one."""
    paths = stage.new()
    truth = read_agent(paths).state
    document = json.loads(paths.state.read_bytes())
    del document["digest"]
    document |= change
    digest = short_hash(encode_raw(document))
    paths.state.write_bytes(encode_raw({**document, "digest": digest}))
    assert read_agent(paths).state == truth
    assert stage.send(paths, "go on").response == "go on"


def encode_raw(document: dict[str, Any]) -> bytes:
    """Return a document in the pinned format, unchecked."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    data = text.encode() + b"\n"
    plain = {**document, "limits": {}, "costUsd": None, "counters": {}}
    assert encode_document(plain) == json.dumps(plain, indent=2).encode() + b"\n"
    return data


FILES = ("descriptor.json", "session.json", "state.json", "history.jsonl", "events.jsonl")
OTHERS = (*FILES, ".lock", ".turn", "transcripts")
PLANTED = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "empty file": Path.touch,
    "nulls": lambda path: path.write_bytes(b"\0" * 5000),
    "deep": lambda path: path.write_bytes(b'{"a":' * 5000 + b"\n"),
    "number": lambda path: path.write_bytes(b"1e999\n"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_whatever_is_in_the_place_of_a_file_the_next_agents_are_reached(
    stage: Any, name: str, plant: Any
) -> None:
    """By what goes over all agents: list, inspect, resolve, outbox, restore."""
    found = sorted((stage.new(name=one) for one in "abc"), key=lambda paths: paths.id)
    victim = found[0]
    path = victim.folder / name
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    plant(path)

    check_all_are_reached(stage, [paths.id for paths in found], victim.id)


def check_all_are_reached(stage: Any, agents: list[str], victim: str) -> None:
    """Go over all agents; those that are sound are read, whatever the other one is."""
    layout = stage.services.layout
    listed = list(each_agent(layout))
    assert [one.paths.id for one in listed] == agents
    for one in listed:
        assert one.paths.id == victim or one.document is not None
        if one.document is not None:
            json.dumps([document_row(one.paths, one.document)])
    assert resolve(layout, "most-recent-foreground").paths.id in agents
    assert agents_with_unsent(layout, set()) == {}
    restored = list(restore_all(stage.services, [one.paths for one in listed]))
    assert [one.agent_id for one in restored] == agents
    assert [one.error for one in restored if one.agent_id != victim] == [None, None]


class BrokenFile(io.BytesIO):
    """A file that a broken disk does not give back."""

    def readline(self, size: int | None = -1) -> bytes:
        """Refuse it."""
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    read = readline


def test_a_log_that_the_disk_does_not_give_back_hides_no_other_agent(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row has the reason that the system gave."""
    found = [stage.new(name=one) for one in "abc"]
    agents = sorted(paths.id for paths in found)
    (stage.root / "agents" / agents[0] / "state.json").unlink()  # so that its log is folded
    opened = os.fdopen

    def broken(descriptor: int, *how: Any, **more: Any) -> Any:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.parent.name != agents[0]:
            return opened(descriptor, *how, **more)
        os.close(descriptor)
        return BrokenFile()

    monkeypatch.setattr(os, "fdopen", broken)
    listed = list(each_agent(stage.services.layout))
    assert [one.paths.id for one in listed] == agents
    assert [one.error.message for one in listed if one.error] == [
        f"cannot read {stage.services.layout.agent(agents[0]).folder}: Input/output error"
    ]
    assert find_readable(stage.services.layout, agents[0]) is None
