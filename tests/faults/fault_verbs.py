"""The writing commands, each on a root made for it. A new verb is one more row of `VERBS`."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from fault_runs import Done, Runner
from fault_shim import Call, Fault, Flag, Mode

SCRIPT = Path(__file__).parents[2] / "fixtures" / "script" / "tools.jsonl"
# A cron agent has its task's uid as id, which makes a root and its traces easy to read.
ONE, TWO = "one".ljust(24, "0"), "two".ljust(24, "0")
PROMPT = "under fault"
SEND = ("send", ONE, PROMPT, "--json")

Logs = dict[str, list[dict[str, Any]]]


class Matrix(IntEnum):
    """How many faults each call of a command is put under; fault_cases.py has the details."""

    PLAIN = 0
    """One of two errors once, others in turn, one error for good: a command with few calls."""
    THIN = 1
    """For what is mostly the same code again: one error once, at every second call for good."""


class Verb(NamedTuple):
    """One command line, and what holds of it.

    `done` says whether the logs hold what exit 0 acknowledges. `again` is the exit code that
    repeating it may have besides 0, once it is done. `fewest` is the least number of calls that it
    makes, and so of places where it is broken. `takes_away` is whether the agent's whole folder may
    be gone from where it was.
    """

    arguments: tuple[str, ...]
    prepare: Callable[[Runner, Path], None]
    done: Callable[[Logs, Done], bool]
    fewest: int
    again: int = 0
    matrix: Matrix = Matrix.PLAIN
    takes_away: bool = False


def _nothing(_runner: Runner, _root: Path) -> None:
    """There is no root yet."""


def _fresh(runner: Runner, root: Path) -> None:
    runner.must(root, "new", "--type", "cron", "--cron", ONE)


def _spoken(runner: Runner, root: Path) -> None:
    _fresh(runner, root)
    runner.must(root, "send", ONE, "before")


def _suspended(runner: Runner, root: Path) -> None:
    _spoken(runner, root)
    runner.must(root, "suspend", ONE)


def _scripted(runner: Runner, root: Path, agent: str = ONE) -> None:
    script = ("--provider", "script", "--option", f"file={SCRIPT}")
    runner.must(root, "new", "--type", "cron", "--cron", agent, *script)
    runner.must(root, "send", agent, "before")


def _crashed(runner: Runner, root: Path) -> None:
    """One agent died in a turn and left files behind; another's derived files are damaged."""
    _scripted(runner, root)
    fourth = _log_writes(runner, root)[3]
    runner.faulty(root, SEND, Fault(Mode.SHORT_THEN_KILL, fourth), lambda: None)
    folder = root / "agents" / ONE
    leave(folder / ".tmp-state.json-0123456789ab", b'{"half": ')
    leave(root / "agents" / f".tmp-{TWO}-0123456789ab" / "events.jsonl", b"")
    _scripted(runner, root, TWO)
    folder = root / "agents" / TWO
    for name in ("state.json", "history.jsonl", "transcripts/manifest.json"):
        path = folder / name
        path.write_bytes(path.read_bytes()[:-9])
    (folder / "descriptor.json").unlink()


def _stubbed(runner: Runner, root: Path) -> None:
    """The log ends in a part of a record that could not be taken back."""
    _spoken(runner, root)
    flags = Flag.SKIP_SYNC | Flag.REFUSE_TRUNCATE
    first = _log_writes(runner, root)[0]
    fault = Fault(Mode.SHORT_THEN_FAIL, first, errno.ENOSPC, flags)
    runner.faulty(root, SEND, fault, lambda: None)


def _log_writes(runner: Runner, root: Path) -> list[int]:
    """Return which calls of a `send` write to the log."""
    shutil.copytree(root, measured := root.with_name("measured"))
    _, calls = runner.faulty(measured, SEND, Fault(), lambda: None)
    shutil.rmtree(measured)
    return [call.index for call in calls if call.name == "write" and is_log(call)]


def leave(path: Path, data: bytes) -> None:
    """Write a file as our own writers do: private, in a private folder."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)


def is_log(call: Call) -> bool:
    """Tell whether a call is on a log."""
    return call.path.endswith("/events.jsonl")


def log_writes(calls: list[Call]) -> int:
    """Return how many whole writes there are to logs."""
    writes = (call for call in calls if is_log(call) and call.name == "write")
    return sum(call.result == call.detail for call in writes)


def _made(logs: Logs, done: Done) -> bool:
    return json.loads(done.out)["agentId"] in logs


def _answered(logs: Logs, _done: Done) -> bool:
    events = [record["event"] for record in logs[ONE]]
    sent = [r["data"]["message_id"] for r in logs[ONE] if PROMPT in str(r["data"].get("content"))]
    last = logs[ONE][-1]["data"]
    return events[-2:] == ["turn.complete", "message.delivered"] and last["message_id"] in sent


def _in_state(state: str) -> Callable[[Logs, Done], bool]:
    def holds(logs: Logs, _done: Done) -> bool:
        return all(state_of(records) == state for records in logs.values())

    return holds


def _renamed(logs: Logs, _done: Done) -> bool:
    return [r["data"]["name"] for r in logs[ONE] if r["event"] == "agent.renamed"] == ["wolf"]


def _gone(logs: Logs, _done: Done) -> bool:
    return ONE not in logs


def state_of(records: list[dict[str, Any]]) -> str:
    """Return the state that a log ends in."""
    states = [r["data"]["to"] for r in records if r["event"] == "session.state"]
    return states[-1] if states else "created"


VERBS = {
    "new": Verb(("new", "--name", "first", "--json"), _nothing, _made, 30, again=1),
    "send, the first": Verb(SEND, _fresh, _answered, 70, matrix=Matrix.THIN),
    "send, with tool calls, recorded": Verb(
        (*SEND, "--record"), _scripted, _answered, 80, matrix=Matrix.THIN
    ),
    "send, to a suspended one": Verb(SEND, _suspended, _answered, 70, matrix=Matrix.THIN),
    "suspend": Verb(("suspend", ONE, "--json"), _spoken, _in_state("suspended"), 18, again=13),
    "resume": Verb(
        ("resume", ONE, "--json"),
        _suspended,
        _in_state("active"),
        16,
        again=13,
        matrix=Matrix.THIN,
    ),
    "restore": Verb(
        ("restore", "--json"), _crashed, _in_state("suspended"), 80, matrix=Matrix.THIN
    ),
    "rm": Verb(
        ("rm", ONE, "--yes", "--json"),
        _spoken,
        _gone,
        10,
        again=10,
        matrix=Matrix.THIN,
        takes_away=True,
    ),
    "rename": Verb(
        ("rename", ONE, "wolf", "--json"),
        _spoken,
        _renamed,
        15,
        matrix=Matrix.THIN,
    ),
    "archive": Verb(
        ("archive", ONE, "--json"),
        _spoken,
        _gone,
        15,
        again=10,
        matrix=Matrix.THIN,
        takes_away=True,
    ),
}

CONTROLS = {
    "new, beside another": Verb(("new", "--name", "second", "--json"), _spoken, _made, 0, again=1),
    "send, after a stub": Verb(SEND, _stubbed, _answered, 0),
}
"""For the tests that show that the rules can fail; not put under every fault."""
