"""Signals at any moment of a turn: an exit code of its own, hardly a word, and a legal state."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console import Console
from machine import interrupt, need
from mounted import in_memory

from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.log import open_log, read_log

WORKER = Path(__file__).with_name("signal_worker.py")
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
NAMES = {number: number.name.removeprefix("SIG") for number in SIGNALS}
TALK = (
    '{"type":"block_complete","blockId":"a",'
    '"block":{"type":"assistant_text","id":"a","content":"before"}}\n'
    '{"type":"sleep","seconds":0.01}\n'
    '{"type":"block_complete","blockId":"b",'
    '"block":{"type":"assistant_text","id":"b","content":"after"}}\n'
)


def spoken(err: str) -> str:
    """Return what was said on stderr, less where a message went that no turn has run yet."""
    queued = (
        r"agentsdir: the message stays queued as \w+; `agentsdir send \w+ --no-message` runs it\n"
    )
    return re.sub(queued, "", err)


REBUILT = {f"rebuilt {name}" for name in ("session.json", "state.json", "history.jsonl")}


@pytest.fixture
def console() -> Iterator[Console]:
    """Return a command line on an agents directory; many turns are run, none must be durable."""
    with in_memory() as folder:
        yield Console(folder / "root", folder)


class Signalled:
    """Runs commands that are sent a signal at their n-th system call."""

    def __init__(self, worker: subprocess.Popen[str]) -> None:
        self._worker = worker

    def __call__(self, arguments: list[str], number: int = 0, at: int = 0) -> dict[str, Any]:
        """Run one command; without a signal it says how many calls it makes."""
        job = {"arguments": arguments, "signal": number, "at": at}
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        self._worker.stdin.write(json.dumps(job) + "\n")
        self._worker.stdin.flush()
        done: dict[str, Any] = json.loads(self._worker.stdout.readline())
        return done


@pytest.fixture
def signalled(console: Console) -> Iterator[Signalled]:
    """Return what runs commands under signals."""
    need("linux")
    with subprocess.Popen(
        [sys.executable, str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=console.environment(),
    ) as worker:
        yield Signalled(worker)
        assert worker.stdin is not None
        worker.stdin.close()


def events(console: Console, agent: str) -> list[Any]:
    """Return the records of a log, all of which must be sound."""
    with open_log(console.log(agent)) as log:
        lines = list(read_log(log, "log"))
    assert [finding for line in lines for finding in line.findings] == []
    return [line.record for line in lines]


def what_became_of(console: Console, agent: str, start: int) -> str:
    """Say how the records from `start` on show that a message ended, which must be legal."""
    new = events(console, agent)[start:]
    kinds = [record.event for record in new if record.event != "session.state"]
    if not kinds:
        return "nothing"
    assert kinds[0] == "message.enqueued"
    if len(kinds) == 1:
        return "pending"
    assert kinds[1] == "turn.start"
    assert kinds[-1] == "message.delivered"
    assert set(kinds[2:-2]) <= {"block", "transcript.synced"}
    if kinds[-2] == "turn.aborted":
        assert new[-2].data["reason"] == "interrupt"
        assert new[-1].data["outcome"] == "aborted"
    return kinds[-2]


@pytest.mark.parametrize(
    ("number", "provider", "step"),
    [
        (signal.SIGINT, "script", 3),
        (signal.SIGINT, "echo", 5),
        (signal.SIGTERM, "script", 5),
        (signal.SIGTERM, "echo", 7),
        (signal.SIGHUP, "script", 7),
    ],
    ids=lambda value: NAMES.get(value) if isinstance(value, signal.Signals) else None,
)
def test_a_signal_at_any_call_of_a_send_ends_it_quietly_in_a_legal_state(
    console: Console, signalled: Signalled, provider: str, number: int, step: int
) -> None:
    """Never started, aborted by an interrupt, or completed: never a turn without an end."""
    (console.cwd / "talk.jsonl").write_text(TALK)
    options = ["--option", "file=talk.jsonl"] if provider == "script" else []
    agent = console.new("--provider", provider, *options)
    arguments = ["send", agent, "hello"]
    console.ok(*arguments)
    ends: Counter[str] = Counter()
    for at in range(1, 1000, step):
        start = len(events(console, agent))
        done = signalled(arguments, number, at)
        end = what_became_of(console, agent, start)
        if done["calls"] < at:
            break
        assert (done["code"], spoken(done["err"])) == (SIGNALS[number], ""), (at, done)
        ends[end] += 1
        for lock in (".lock", ".turn"):
            assert not locks.is_held(console.folder(agent) / lock)
        if end == "pending":
            # It is run before the next message; now, so that all turns make the same calls.
            console.ok("send", agent, "and this")
        if at % 20 < step:
            restored = console("restore", "--json")
            assert restored.code == 0
            assert set(json.loads(restored.out)["actions"]) <= {"suspended", *REBUILT}
            console.ok("resume", agent)
    assert (done["code"], end) == (0, "turn.complete")
    assert at > 40
    assert set(ends) == {"nothing", "pending", "turn.aborted", "turn.complete"}, ends
    assert console.problems() == []


@pytest.mark.parametrize(
    ("verb", "number"), [("suspend", signal.SIGHUP), ("resume", signal.SIGINT)]
)
def test_a_signal_at_any_call_of_a_transition_leaves_the_one_state_or_the_other(
    console: Console, signalled: Signalled, verb: str, number: int
) -> None:
    """And the log, session.json and state.json agree on which."""
    agent = console.new()
    console.ok("send", agent, "hello")
    back = {"suspend": "resume", "resume": "suspend"}[verb]
    if verb == "resume":
        console.ok("suspend", agent)
    seen = set()
    for at in range(1, 1000):
        done = signalled([verb, agent], number, at)
        if done["calls"] < at:
            break
        assert (done["code"], spoken(done["err"])) == (SIGNALS[number], ""), (at, done)
        state = read_agent(Layout(console.root).agent(agent), whole=True).state.session.state
        seen.add(state.value)
        assert console.problems() == []
        if state.value == {"suspend": "suspended", "resume": "active"}[verb]:
            console.ok(back, agent)
    assert seen == {"active", "suspended"}


@pytest.mark.parametrize(
    ("number", "call"),
    [
        (signal.SIGINT, "fsync:{}:when=3"),
        (signal.SIGTERM, "write:{}:when=4"),
        (signal.SIGHUP, "flock:{}:when=2"),
    ],
    ids=NAMES.get,
)
def test_a_signal_that_strace_sends_at_a_call_is_met_in_the_same_way(
    console: Console, number: int, call: str
) -> None:
    """A process of its own, from its start to its end, and signals as the kernel sends them."""
    need("strace")
    agent = console.new()
    start = len(events(console, agent))
    tampered = interrupt(call.format(f"signal={NAMES[number]}"))
    done = console.process("send", agent, "hello", before=tampered)
    assert (done.code, spoken(done.err)) == (SIGNALS[number], "")
    assert what_became_of(console, agent, start) in ("pending", "turn.aborted", "turn.complete")
    console.ok("restore")
    assert console.problems() == []


def first_call_of_ours(console: Console, folder: Path) -> tuple[int, int]:
    """Return the number of the `openat` with which `main` begins to import, and of the last one."""
    trace = folder / "trace"
    command = ("strace", "-f", "--seccomp-bpf", "-qq", "-o", str(trace), "-e", "trace=openat")
    assert console.process("list", before=command).code == 0
    lines = [line for line in trace.read_text().splitlines() if "openat(" in line]
    ours = re.compile(r"cli/(?:__pycache__/)?environment\.")
    first = next(at for at, line in enumerate(lines, 1) if ours.search(line))
    return first, len(lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_program_starts_ends_it_quietly(console: Console, number: int) -> None:
    """From the first thing that is imported for a command to the last."""
    need("strace")
    console.new()
    first, last = first_call_of_ours(console, console.cwd)
    assert last - first > 50
    for at in range(first + 1, last + 1, (last - first) // 3):
        tampered = interrupt(f"openat:signal={NAMES[number]}:when={at}")
        done = console.process("list", before=tampered)
        # A shell says the same of a process that a signal ends as of one that exits for it.
        code = done.code if done.code >= 0 else 128 - done.code
        assert (code, done.out, done.err) == (SIGNALS[number], "", ""), (at, done)
