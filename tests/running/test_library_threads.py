"""A hundred sessions in one process, by threads and asyncio, and seven processes beside it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from house import House, Record, say, shell, sleep
from oracle import call_faults, faults

from agentsdir.engine.snapshots import check_snapshot

THRONG = Path(__file__).with_name("library_throng.py")
SLOTS = 4
GONE = re.compile(r"agentsdir: (no agent '\w+' in .*|\S+ is gone)")
SENDS = {"send", "abort", "late"}
TURNS = {*SENDS, "render"}
ABORTED = {"turn-aborted"}
CLOSED = {"closed", "session-state"}
ENDS = {
    "send": {"", "said-so", *ABORTED, *CLOSED},
    "abort": {"", "said-so", *ABORTED, *CLOSED},
    "late": {"", "said-so", "turn-timeout", *ABORTED, *CLOSED},
    "render": {"", "said-so", "dropped", *ABORTED, *CLOSED},
    "queue": {"", *CLOSED},
    "spawn": {"", *ABORTED, *CLOSED},
    "stop": {"", *CLOSED},
    "close": {""},
    "agentsdir send": {"", "10", "13", "14", "130"},
    "agentsdir queue": {"", "10", "13"},
    "agentsdir interrupt": {"", "10", "13"},
    "agentsdir spawn": {"", "10", "13", "14", "130"},
    "agentsdir list": {""},
    "agentsdir inspect": {"", "10"},
}
"""How each may end: the kind of the error, or the exit code."""
LOGGED = {
    "": ("turn.complete", None),
    "said-so": ("turn.error", "said-so"),
    "turn-timeout": ("turn.aborted", "timeout"),
}
"""The record of a turn that has a result."""
Calls = list[dict[str, Any]]


class Logs:
    """What the logs say, by message and by turn."""

    def __init__(self, house: House) -> None:
        self.of = house.logs()
        self.messages: dict[str, tuple[str, str]] = {}
        self.turns: dict[str, str] = {}
        self.ends: dict[str, Record] = {}
        self.blocks: dict[str, list[str]] = {}
        self.called: set[str] = set()
        self.closed: set[str] = set()
        self.dropped: set[str] = set()
        for agent, log in self.of.items():
            for record in log:
                self._take(agent, record["event"], record["data"], record)

    def _take(self, agent: str, event: str, data: dict[str, Any], record: Record) -> None:
        if event == "message.enqueued":
            text = "".join(part.get("text", "") for part in data["content"])
            assert data["message_id"] not in self.messages
            self.messages[data["message_id"]] = agent, text
        elif event == "turn.start":
            self.turns |= dict.fromkeys(data["message_ids"], data["turn_id"])
        elif event in ("turn.complete", "turn.error", "turn.aborted"):
            self.ends[data["turn_id"]] = record
        elif event == "message.delivered" and data["message_id"] not in self.turns:
            self.dropped.add(data["message_id"])
        elif event == "session.state" and data["to"] == "terminated":
            self.closed.add(agent)
        elif event == "block" and not data["block"]["id"].startswith("spawn:"):
            self.blocks.setdefault(data["turn_id"], []).append(data["block"]["id"])
            if data["block"]["type"] == "tool_use":
                self.called.add(data["turn_id"])


@pytest.mark.feature("S-07", "G-06", "A-07")
def test_sessions_of_a_program_lose_nothing_whatever_others_do(house: House) -> None:
    """Each message once and in order, each result as logged, each callback once, and no rest."""
    house.settle(max_slots=SLOTS)
    folders = {name: str(house.folder / name) for name in ("notes", "store")}
    for folder in folders.values():
        Path(folder).mkdir()
    calls = [say("I look."), shell("c1", "first"), shell("c2", "second"), say("I saw.")]
    job = {
        "calls": house.script("calls", calls).partition("=")[2],
        "script": house.script("turn", [say("heard"), sleep(0.02), say("done")]).partition("=")[2],
        "sessions": 100, "workers": 100, "programs": 3, "commands": 4, "rounds": 3, "mortal": 20,
        "seed": 1, **folders,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(THRONG), json.dumps(job)],
        env=house.environment, cwd=house.work, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    # A process that a command starts for a program's child may find that it is done and gone.
    said = [line for line in done.stderr.splitlines() if not GONE.fullmatch(line)]
    assert (done.returncode, said) == (0, []), done.stderr
    assert house.running() == []
    check(house, Path(folders["notes"]))


def check(house: House, notes: Path) -> None:
    """Hold what the processes noted to the logs."""
    told = [json.loads(path.read_bytes()) for path in sorted(notes.glob("[!k]*"))]
    made: Calls = [one for calls, _ in told for one in calls]
    logs = Logs(house)
    ends = Counter((one["way"], one["end"]) for one in made)
    assert {end: count for end, count in ends.items() if end[1] not in ENDS[end[0]]} == {}
    check_messages(made, logs)
    for one in made:
        if one["way"] in TURNS:
            check_result(one, logs)
            check_callbacks(one, logs)
    check_others(made, logs)
    check_sessions([tuple(one) for _, around in told for one in around], logs)
    check_kept(notes, logs)
    taken_back = {one["message"] for one in made if one["aborted"]}
    assert faults(house, SLOTS, taken_back) == []
    assert call_faults(house) == []


def check_messages(made: Calls, logs: Logs) -> None:
    """Each is in its log once, as it was given, and those of a worker in its order."""
    known = {one["message"]: one for one in made if one["message"]}
    for one in made:
        expected = f"{one['text']} app session" if one["way"] in SENDS else one["text"]
        if one["message"] and one["way"] != "spawn":
            agent, text = logs.messages[one["message"]]
            assert (text, one["agent"] or agent) == (expected, agent)
        elif one["end"] == "":
            assert one["way"] not in (*SENDS, "queue", "agentsdir send", "agentsdir queue"), one
    for agent, log in logs.of.items():
        arrived = [r["data"]["message_id"] for r in log if r["event"] == "message.enqueued"]
        by_worker: dict[str, list[str]] = {}
        for message in arrived:
            if message in known:
                by_worker.setdefault(known[message]["worker"], []).append(message)
        for worker, theirs in by_worker.items():
            wanted = [one["message"] for one in made if one["worker"] == worker
                      and one["message"] in theirs]  # fmt: skip
            assert theirs == wanted, (agent, worker)


def check_result(one: dict[str, Any], logs: Logs) -> None:
    """It is what the log says of the turn."""
    turn = logs.turns.get(one["message"], "") if one["way"] in SENDS else one["turn"]
    end = logs.ends.get(turn)
    if one["way"] == "render" and one["end"] == "said-so":
        # Of the messages that waited, the last one that failed need not be the last one.
        seen = {key[1] for name, _, key in one["called"] if name == "tick_start"}
        assert any(logs.ends[turn]["data"].get("kind") == "said-so" for turn in seen), one
    elif one["end"] in LOGGED:
        event, why = LOGGED[one["end"]]
        assert end is not None, one
        assert one["turn"] == turn, one
        why_logged = end["data"].get("kind") or end["data"].get("reason")
        assert (end["event"], why_logged) == (event, why), (one, end)
        assert one["response"] == end["data"].get("response", "")
    elif one["end"] in ABORTED and end is not None:
        assert end["event"] == "turn.aborted", (one, end)
    elif one["end"] in ABORTED:
        assert one["aborted"] or one["agent"] in logs.closed, one
    else:
        assert one["agent"] in logs.closed or one["end"] == "dropped", one


def check_callbacks(one: dict[str, Any], logs: Logs) -> None:
    """Each is called once, first that of the app, then that of the session."""
    assert one["wrapped"] in (["app", "call"], []), one
    assert one["wrapped"] or one["end"], one
    called = [tuple(map(str, said)) for said in one["called"]]
    assert [level for _, level, _ in called] == ["app", "session"] * (len(called) // 2), one
    assert [(name, key) for name, _, key in called[::2]] == [
        (name, key) for name, _, key in called[1::2]
    ], one
    said = [(name, key) for name, level, key in one["called"] if level == "app"]
    names = [name for name, _ in said]
    count = Counter(names)
    is_send = one["way"] in SENDS
    turn = logs.turns.get(one["message"], "") if is_send else one["turn"]
    if is_send and one["message"]:
        assert count["before_send"] == 1, one
    assert count["before_send"] <= is_send, one
    if is_send and turn:
        assert count["after_send"] == 1, one
        assert ("after_send", one["message"]) in said, one
    assert count["after_send"] <= is_send, one
    ticks = [(name, key) for name, key in said if name in ("tick_start", "tick_end")]
    assert [name for name, _ in ticks] == ["tick_start", "tick_end"] * (len(ticks) // 2), one
    starts = [key for name, key in ticks if name == "tick_start"]
    assert [number for number, _ in starts] == [key for name, key in ticks if name == "tick_end"]
    seen = dict.fromkeys(execution for _, execution in starts)
    for execution in seen:
        numbers = [number for number, id_ in starts if id_ == execution]
        assert numbers == [*range(1, len(numbers) + 1)], one
    ended = [key for name, key in said if name == "complete"]
    assert len(set(ended)) == len(ended), one
    # Messages that were queued before have their turns in the same execution.
    turns = {*seen, *ended, *([turn] if turn else [])}
    has_no_turn = not turn and "after_send" in names
    assert count["complete"] + count["error"] == len(turns) + has_no_turn, one
    if not turn:
        return
    is_complete = logs.ends[turn]["event"] == "turn.complete"
    assert (turn in ended) == is_complete, one
    own = own_part(said) if is_send else said
    blocks = [key for name, key in own if name == "block"]
    if is_complete:
        wanted = logs.blocks[turn]
        assert blocks[-len(wanted) :] == wanted, (one, wanted)
        assert len([key for name, key in own if name == "tick_start" and key[1] == turn]) >= 1
    assert count["before_persist"] == count["after_persist"], one
    mine = [key for name, key in said if name == "before_persist" and key == one["agent"]]
    assert len(mine) == 1, one
    shown = [block for block in one["shown"] if not block.startswith("spawn:")]
    if is_send and is_complete:
        assert shown == logs.blocks[turn], one


def own_part(said: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return what was called for the turn of a send itself: not before it, and not after it."""
    end = next(number for number, (name, _) in enumerate(said) if name == "after_send")
    ends = [number for number, (name, _) in enumerate(said[:end]) if name in ("complete", "error")]
    start = ends[-2] + 1 if len(ends) > 1 else 0
    return said[start:end]


def app_of(one: dict[str, Any]) -> str:
    """Return which app, or process with commands, made a call."""
    worker: str = one["worker"]
    return worker[:2] if worker[0] in "pc" else worker[0]


def check_others(made: Calls, logs: Logs) -> None:
    """A spawned child has no callbacks; an app's are called once for a turn, and for its own."""
    turn_of = {logs.turns[one["message"]]: one for one in made if one["message"] in logs.turns}
    for one in made:
        if one["way"] in ("spawn", "queue"):
            # Any thread may save a session that it puts out of memory.
            assert {name for name, _, _ in one["called"]} <= {"before_persist", "after_persist"}
            assert one["wrapped"] == ["app", "call"] or one["end"], one
        if one["way"] in SENDS:
            for turn in {key for name, _, key in one["called"] if name == "complete"}:
                sent = turn_of.get(turn, one)  # answers of subagents belong to no call
                assert sent is one or (sent["way"], app_of(sent)) == ("queue", app_of(one)), sent
    for app in {app_of(one) for one in made}:
        said = [
            (name, level, str(key)) for one in made if app_of(one) == app
            for name, level, key in one["called"] if name in ("complete", "tick_start")
        ]  # fmt: skip
        assert [one for one, count in Counter(said).items() if count > 1] == []


def check_sessions(around: list[tuple[str, str, str]], logs: Logs) -> None:
    """Each is made once and closed once, whichever process does, and comes back from its store."""
    count = Counter(around)
    created = {agent for name, _, agent in around if name == "create"}
    for agent in created:
        for level in ("app", "session"):
            assert count["create", level, agent] == 1
            assert count["close", level, agent] == (agent in logs.closed)
    assert len(created) >= 50
    assert len(logs.closed & created) > 3
    restored = Counter(level for name, level, _ in around if name == "restore")
    assert restored["app"] == restored["session"] > 50


def check_kept(notes: Path, logs: Logs) -> None:
    """The last snapshot of each session has what a log has."""
    known = {record["data"]["block"]["id"] for log in logs.of.values() for record in log
             if record["event"] == "block"}  # fmt: skip
    kept = sorted(notes.glob("kept *"))
    assert len(kept) == 100
    for path in kept:
        snapshot = check_snapshot(json.loads(path.read_bytes()))
        assert {block["id"] for block in snapshot["timeline"]} - known == set()
