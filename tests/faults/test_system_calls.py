"""What commands ask of the kernel, as strace sees it, and that the shim sees the same."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_shim import Control, Fault, Flag, preloaded
from fault_strace import Seen, strace
from fault_verbs import ONE, SCRIPT

Command = Callable[..., list[Seen]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return where an agents directory can be made."""
    return tmp_path.resolve() / "root"


@pytest.fixture
def command(root: Path, tmp_path: Path, require_programs: Any) -> Command:
    """Return a function that runs a command under strace and says what it did."""
    require_programs("strace")
    probe = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("strace may trace nothing here")

    def run(*arguments: str, code: int = 0, **options: Any) -> list[Seen]:
        seen, done = strace(root, tmp_path / "report", *arguments, **options)
        assert done.returncode == code, done
        return seen

    return run


def new(command: Command) -> list[Seen]:
    """Make an agent that plays a script."""
    script = ("--provider", "script", "--option", f"file={SCRIPT}")
    return command("new", "--type", "cron", "--cron", ONE, *script)


def counted(seen: Seen) -> bool:
    """Tell whether the shim counts a call; the C library lists folders behind its back."""
    if seen.name == "open-folder":
        return "O_NONBLOCK" not in seen.arguments
    return seen.writes or seen.name == "flock"


def test_the_shim_counts_what_strace_sees(command: Command, root: Path, rig: Any) -> None:
    """Every call with an effect, and every lock, in the same order and on the same paths."""
    control = Control(root.with_name("control"))
    variables = preloaded(rig.library, control)
    extra = {name: variables[name] for name in ("LD_PRELOAD", "FAULT_CONTROL")}
    steps = (
        ("new", "--type", "cron", "--cron", ONE, "--option", f"file={SCRIPT}", "--provider=script"),
        ("send", ONE, "hi"),
        ("suspend", ONE),
        ("list",),
        ("restore",),
    )
    for arguments in steps:
        control.arm(root, Fault(flags=Flag(0)))
        seen = [call for call in command(*arguments, variables=extra) if counted(call)]
        wanted = [(call.name, call.paths) for call in seen]
        got = [(c.name, tuple(p for p in (c.path, c.other) if p)) for c in control.calls()]
        assert [(name, paths or ("",)) for name, paths in got] == wanted
        assert wanted


def test_a_forked_command_makes_the_calls_of_a_process(root: Path, rig: Any) -> None:
    """What the fork server puts under faults is what a user runs."""
    control = Control(root.with_name("control"))
    control.arm(root, Fault())
    rig.process(root, control, "new", "--name", "first", "--json")
    traces = [control.calls(), rig.sound("new").calls]
    # Agent ids and temporary names are random.
    random = re.compile(r"\b[a-z][a-z0-9]{23}\b|-[0-9a-f]{12}")
    real, forked = [[(c.name, random.sub("", c.target)) for c in calls] for calls in traces]
    assert forked == real


def test_an_event_costs_at_most_one_sync_of_the_log(command: Command, root: Path) -> None:
    """`send` syncs the log once for each event that it appends, and never more."""
    new(command)
    seen = command("send", ONE, "hi")
    syncs = [call for call in seen if call.name == "fsync" and "events.jsonl" in call.paths[0]]
    log = (root / "agents" / ONE / "events.jsonl").read_bytes().splitlines()
    appended = [json.loads(line)["event"] for line in log[1:]]
    assert appended.count("block") == 4
    assert 0 < len(syncs) <= len(appended)


@pytest.mark.parametrize("name", ["list", "inspect", "replay", "parse", "validate"])
def test_a_reader_writes_nothing_and_locks_nothing(command: Command, root: Path, name: str) -> None:
    """No call that writes, creates, renames or locks; a share of `.turn` at most."""
    new(command)
    command("send", ONE, "hi")
    operands = {"inspect": [ONE], "replay": [ONE], "parse": [], "validate": []}.get(name, [])
    if name == "parse":
        (path,) = (root / "agents" / ONE / "transcripts").glob("*.jsonl")
        operands = [str(path)]
    seen = command(name, *operands)
    assert seen
    assert [call for call in seen if call.writes] == []


def test_files_are_private_from_the_call_that_makes_them(command: Command, root: Path) -> None:
    """The mode is given on creation, and nothing is made private afterwards."""
    seen = [*new(command), *command("send", ONE, "hi"), *command("suspend", ONE)]
    assert not [call for call in seen if call.name in ("chmod", "chown")]
    made = [call for call in seen if call.name == "mkdir" or "O_CREAT" in call.arguments]
    assert {call.name for call in made} == {"mkdir", "open"}
    for call in made:
        mode = re.search(r", (0\d+)$", call.arguments)
        assert mode is not None, call
        assert mode[1] == ("0700" if call.name == "mkdir" else "0600"), call


def test_the_shim_can_give_away_a_lock_that_is_held(root: Path, rig: Any) -> None:
    """The control for tests of locks: with it, two hold the same one."""
    control = Control(root.with_name("control"))
    agent = rig.process(root, control, "new").stdout.strip()
    rig.process(root, control, "send", agent, "hi")
    with (root / "agents" / agent / ".turn").open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert rig.process(root, control, "suspend", agent, code=11)
        control.arm(root, Fault(flags=Flag.SKIP_SYNC | Flag.FREE_LOCKS))
        rig.process(root, control, "suspend", agent)
