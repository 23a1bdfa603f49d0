"""What `restore` does: notices by kind, dangling calls, losses, leftovers, dry runs."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.engine.outbox import mark_all_delivered
from agentsdir.engine.restore import restore_agent, restore_all, sweep_root
from agentsdir.engine.slots import suspend
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.engine.validate.files import validate
from agentsdir.formats.blocks import make_block
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent, write_agent, wrong_files
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.log import line_hash


def crash(stage: Any, paths: AgentPaths, *blocks: dict[str, Any]) -> str:
    """Leave an active agent as a process does that dies within a turn; return the turn's id."""
    if stage.state(paths).session.state == "created":
        change = {"from": "created", "to": "active", "reason": "send"}
        stage.append(paths, "session.state", change)
    message = stage.enqueue(paths, "doomed")
    turn = stage.ids.agent()
    start = {"turn_id": turn, "message_ids": [message], "provider": "echo", "attempt": 1}
    stage.append(paths, "turn.start", start)
    for block in blocks:
        stage.append(paths, "block", {"turn_id": turn, "block": block})
    return str(turn)


def call(block_id: str, status: str = "pending", **fields: Any) -> dict[str, Any]:
    """Return a tool call."""
    return make_block(
        "tool_use",
        block_id,
        "main",
        "s",
        None,
        None,
        toolName="Bash",
        toolUseId=f"use-{block_id}",
        input={},
        status=status,
        **fields,
    )


def result(block_id: str) -> dict[str, Any]:
    """Return what a tool call gave."""
    fields = {"toolUseId": f"use-{block_id}", "output": "done", "isError": False}
    return make_block("tool_result", f"{block_id}-result", "main", "s", None, None, **fields)


def added(stage: Any, paths: AgentPaths, before: int) -> list[dict[str, Any]]:
    """Return the records after the first `before` ones."""
    return stage.log(paths)[before:]  # type: ignore[no-any-return]


def is_sound(stage: Any) -> bool:
    """Tell whether `validate` has nothing to say that fails."""
    return [str(problem) for problem in validate([stage.root]) if problem.is_damage] == []


@pytest.mark.feature("T-06", "T-08", "G-04")
def test_a_person_whose_turn_died_gets_one_notice(stage: Any) -> None:
    """One outgoing, `Internal error.`, in reply to the message; nothing is run again."""
    paths = stage.new(connector="telegram", user="42", channel="c")
    turn = crash(stage, paths)
    before = len(stage.log(paths))
    restore_agent(stage.services, paths)
    records = added(stage, paths, before)
    assert [r["event"] for r in records] == [
        "turn.aborted",
        "outgoing",
        "message.delivered",
        "session.state",
    ]
    said = records[1]["data"]
    assert said == {
        "message_id": said["message_id"],
        "connector": "telegram",
        "userId": "42",
        "channelId": "c",
        "text": "Internal error.",
        "in_reply_to": records[2]["data"]["message_id"],
    }
    assert records[0]["data"] == {"turn_id": turn, "reason": "crash"}
    log = paths.log.read_bytes()
    assert restore_agent(stage.services, paths).actions == ()
    assert paths.log.read_bytes() == log
    assert is_sound(stage)


@pytest.mark.feature("T-06")
@pytest.mark.parametrize(
    "wanted", [{"kind": "cron", "cron": "nightly"}, {"kind": "heartbeat"}], ids=["cron", "heart"]
)
def test_no_notice_says_that_a_scheduled_turn_died(stage: Any, wanted: dict[str, str]) -> None:
    """The schedule will run again."""
    paths = stage.new(**wanted)
    crash(stage, paths)
    before = len(stage.log(paths))
    restore_agent(stage.services, paths)
    events = [r["event"] for r in added(stage, paths, before)]
    assert events == ["turn.aborted", "message.delivered", "session.state"]


@pytest.mark.feature("T-06")
@pytest.mark.parametrize("order", [1, -1], ids=["parent first", "child first"])
def test_a_parent_gets_exactly_one_notice_that_its_subagent_died(stage: Any, order: int) -> None:
    """By a system message in its inbox, from the child; a queued one causes no notice."""
    parent = stage.new()
    child = stage.new(kind="subagent", parent=parent.id, name="reviewer")
    crash(stage, child)
    both = [parent, child][::order]
    actions = [a for one in restore_all(stage.services, both) for a in one.actions]
    assert f"told its parent {parent.id}" in actions
    (message,) = stage.state(parent).pending
    assert (message["sender"], message["kind"]) == (child.id, "system")
    assert message["content"] == [
        {
            "type": "text",
            "text": f"Subagent reviewer ({child.id}) failed: Restored with pending work.",
        }
    ]
    log = parent.log.read_bytes()
    assert [one.actions for one in restore_all(stage.services, both)] == [(), ()]
    assert parent.log.read_bytes() == log
    assert is_sound(stage)


@pytest.mark.feature("T-06")
@pytest.mark.parametrize("how", ["removed", "unreadable", "terminated", "itself"])
def test_a_parent_that_is_gone_is_named(stage: Any, how: str) -> None:
    """The child is brought to a sound state all the same."""
    parent = stage.new()
    child = stage.new(kind="subagent", parent=parent.id, name="reviewer")
    crash(stage, child)
    if how == "removed":
        shutil.rmtree(parent.folder)
    elif how == "unreadable":
        parent.log.write_bytes(b"\0")
        parent.descriptor.unlink()
        parent.state.unlink()
    elif how == "terminated":
        change = {"from": "created", "to": "terminated", "reason": "close"}
        stage.append(parent, "session.state", change)
    else:
        log = child.log.read_bytes().replace(parent.id.encode(), child.id.encode())
        child.log.write_bytes(log)
        child.state.unlink()
    done = restore_agent(stage.services, child)
    assert done.error is None
    named = child.id if how == "itself" else parent.id
    said = "cannot be told now" if how == "unreadable" else "is gone, and was not told"
    assert any(action.startswith(f"its parent {named} {said}") for action in done.actions)
    assert stage.state(child).open_turn is None


@pytest.mark.parametrize("killed_after", range(6))
def test_closing_a_turn_can_be_killed_after_any_record_and_done_again(
    stage: Any, killed_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is written once in all, in one process or another."""
    from agentsdir.formats.store.log import OpenLog

    paths = stage.new(connector="telegram", user="42", channel="c")
    crash(stage, paths, call("a"))
    taken = 0

    def dying(*arguments: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken > killed_after:
            raise KeyboardInterrupt
        return append(*arguments)

    append = OpenLog.append
    monkeypatch.setattr(OpenLog, "append", dying)
    with pytest.raises(KeyboardInterrupt):
        restore_agent(stage.services, paths)
    monkeypatch.undo()
    restore_agent(stage.services, paths)
    events = stage.events(paths)
    assert events[-6:] == [
        "block",
        "block",
        "turn.aborted",
        "outgoing",
        "message.delivered",
        "session.state",
    ]
    assert len(events) == 11


@pytest.mark.parametrize(
    ("target", "readings"), [({}, 3), ({"connector": "telegram", "user": "4", "channel": "c"}, 6)]
)
def test_the_log_of_a_crashed_agent_is_read_once_for_the_plan_and_once_for_each_hold(
    stage: Any, monkeypatch: pytest.MonkeyPatch, target: dict[str, str], readings: int
) -> None:
    """However many records it gets; a text for a hook is looked up, too."""
    paths = stage.new(**target)
    crash(stage, paths, *(call(f"c{number}") for number in range(20)))
    opened = []
    real_open = os.open

    def counted(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if Path(path) == paths.log and not flags & (os.O_WRONLY | os.O_RDWR):
            opened.append(path)
        return real_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", counted)
    done = restore_agent(stage.services, paths).actions
    assert len(done) > 40
    assert len(opened) == readings


def test_the_log_of_an_agent_in_order_is_read_once(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its state, for history.jsonl, and for all that recovery asks of it."""
    paths = stage.new(connector="telegram", user="42", channel="c")
    stage.send(paths, "hello")
    restore_agent(stage.services, paths)
    opened = []
    real_open = os.open

    def counted(path: Any, *args: Any, **kwargs: Any) -> int:
        if Path(path) == paths.log:
            opened.append(path)
        return real_open(path, *args, **kwargs)

    mark_all_delivered(stage.services, paths)
    monkeypatch.setattr(os, "open", counted)
    assert restore_agent(stage.services, paths).actions == ()
    assert len(opened) == 1


def test_a_message_that_comes_between_plan_and_lock_is_part_of_the_plan(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read again where it is not what it was."""
    from agentsdir.engine import restore

    paths = stage.new()
    crash(stage, paths)
    real_hold = restore.hold_turn
    late = []

    def hold_late(*arguments: Any) -> Any:
        late.append(stage.enqueue(paths, "late"))
        stage.append(paths, "outgoing", {"message_id": "t" * 24, "connector": "c", "text": "hi"})
        return real_hold(*arguments)

    monkeypatch.setattr(restore, "hold_turn", hold_late)
    assert "suspended" in restore_agent(stage.services, paths).actions
    assert [message["messageId"] for message in stage.state(paths).pending] == late
    assert wrong_files(paths, read_agent(paths, whole=True).state) == []


def test_history_is_compared_and_made_again_without_being_held(stage: Any) -> None:
    """A history of 20 MB takes a few MB, whether it is right or wrong."""
    paths = stage.new()
    text = "long " * 10_000
    with write_agent(paths, disk=Disk(Durability.NEVER)) as writer:
        for number in range(400):
            block = make_block("text", f"b{number}", "main", "s", None, "assistant", content=text)
            writer.append("block", {"turn_id": None, "block": block}, stage.now())
    size = paths.history.stat().st_size
    assert size > 20_000_000
    for cut in (0, 1):
        os.truncate(paths.history, size - cut)
        tracemalloc.start()
        try:
            actions = restore_agent(stage.services, paths).actions
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert ("rebuilt history.jsonl" in actions) == bool(cut)
        assert peak < size / 3
    assert paths.history.stat().st_size == size


def test_calls_that_will_never_return_are_answered_with_a_marked_result(stage: Any) -> None:
    """In the turn that died only; what was answered, or had ended, is left alone."""
    paths = stage.new()
    subagent = make_block(
        "subagent", "s1", "main", "s", None, None, subagentId="x", input="", status="running"
    )
    blocks = [call("open"), call("answered"), result("answered"), call("over", "error"), subagent]
    turn = crash(stage, paths, *blocks)
    before = len(stage.log(paths))
    restore_agent(stage.services, paths)
    records = [r["data"] for r in added(stage, paths, before) if r["event"] == "block"]
    assert {record["turn_id"] for record in records} == {turn}
    answer, closed, lost = (record["block"] for record in records)
    assert (answer["type"], answer["toolUseId"]) == ("tool_result", "use-open")
    assert (answer["isError"], answer["synthetic"]) == (True, True)
    assert closed == {**call("open"), "status": "error"}
    assert (lost["id"], lost["status"], lost["synthetic"]) == ("s1", "error", True)
    assert is_sound(stage)


@pytest.mark.feature("G-04")
def test_a_message_that_only_waits_causes_no_notice_and_is_not_run(stage: Any) -> None:
    """It stays in the inbox for the next `send`."""
    paths = stage.new()
    stage.send(paths)
    message = stage.enqueue(paths, "later")
    before = len(stage.log(paths))
    restore_agent(stage.services, paths)
    assert [r["event"] for r in added(stage, paths, before)] == ["session.state"]
    assert [m["messageId"] for m in stage.state(paths).pending] == [message]


@pytest.mark.feature("S-06")
def test_at_boot_each_active_session_that_no_process_holds_is_suspended(stage: Any) -> None:
    """In its log and its session.json, with the time; a session in any other state stays there."""
    active, crashed, held, created, suspended, closed = (stage.new() for _ in range(6))
    for paths in (active, held, suspended, closed):
        stage.send(paths)
    crash(stage, crashed)
    for paths, state in ((suspended, "suspended"), (closed, "terminated")):
        stage.append(paths, "session.state", {"from": "active", "to": state, "reason": "test"})
    before = {paths: stage.events(paths) for paths in (held, created, suspended, closed)}

    agents = [active, crashed, held, created, suspended, closed]
    with hold_turn(held):
        states = [one.state for one in restore_all(stage.services, agents)]

    assert states == ["suspended", "suspended", "active", "created", "suspended", "terminated"]
    for paths in (active, crashed):
        last = stage.log(paths)[-1]
        assert last["event"] == "session.state"
        assert last["data"] == {"from": "active", "to": "suspended", "reason": "restore"}
        session = orjson.loads(paths.session.read_bytes())
        assert (session["state"], session["suspended_at"]) == ("suspended", last["ts"])
    assert {paths: stage.events(paths) for paths in before} == before
    assert stage.send(active, "again").response == "again"


@pytest.mark.feature("S-06")
def test_a_dry_run_says_what_will_be_done_and_writes_nothing(stage: Any) -> None:
    """Neither a lock file nor a byte; then exactly that is done."""
    paths = stage.new()
    crash(stage, paths, call("a"))
    paths.history.unlink()
    (paths.folder / ".tmp-state.json-0a").write_bytes(b"x")
    before = {p: p.stat().st_mtime_ns for p in stage.root.rglob("*")}
    said = restore_agent(stage.services, paths, dry_run=True)
    assert {p: p.stat().st_mtime_ns for p in stage.root.rglob("*")} == before
    assert not paths.turn.exists()
    done = restore_agent(stage.services, paths)
    assert said.actions == done.actions
    assert "suspended" in said.actions
    assert "rebuilt history.jsonl" in said.actions
    assert "removed .tmp-state.json-0a" in said.actions
    assert (said.state, done.state) == ("active", "suspended")


def test_leftovers_of_dead_writers_are_removed_and_nothing_else(stage: Any) -> None:
    """In the root, among the agents, in an agent's folder and its transcripts; links too."""
    paths = stage.new()
    stage.send(paths)
    keep = stage.root.parent / "keep"
    keep.mkdir()
    (keep / "file").write_text("precious")
    left = [
        stage.root / ".tmp-agentsdir.json-01",
        stage.root / "agents" / f".tmp-{paths.id}-02",
        paths.folder / ".tmp-session.json-03",
        paths.transcripts / ".tmp-manifest.json-04",
    ]
    for path in left:
        path.mkdir() if path.parent.name == "agents" else path.write_bytes(b"half")
    link = stage.root / "agents" / ".tmp-link"
    link.symlink_to(keep)
    (left[1] / "events.jsonl").write_bytes(b"{")
    inside = {left[2].name, left[3].name}
    assert set(sweep_root(stage.services, dry_run=True)) == {left[0], left[1], link}
    assert left[0].exists()
    assert set(sweep_root(stage.services)) == {left[0], left[1], link}
    actions = restore_agent(stage.services, paths).actions
    assert {a.removeprefix("removed ") for a in actions if a.startswith("removed")} == inside
    assert not any(path.exists() for path in left)
    assert (keep / "file").read_text() == "precious"


def test_a_living_writer_keeps_its_temporary_files(stage: Any) -> None:
    """A process makes agents under the create lock; sweeping waits, and gives up after a while."""
    left = stage.root / "agents" / ".tmp-x-01"
    stage.new()
    left.mkdir()
    with locks.hold(stage.services.layout.create_lock):
        assert left.exists()
    assert sweep_root(stage.services) == [left]


@pytest.mark.parametrize("gone", [(), ("state.json",), ("session.json",), ("history.jsonl",)])
def test_a_lost_first_record_is_made_again_from_the_descriptor(
    stage: Any, gone: tuple[str, ...]
) -> None:
    """Readers show the agent with the damage; writers leave it to `restore`, which is lossy."""
    paths = stage.new(name="mine")
    stage.send(paths, "hello")
    for name in gone:
        (paths.folder / name).unlink()
    first, rest = paths.log.read_bytes().split(b"\n", 1)
    paths.log.write_bytes(b"?" * len(first) + b"\n" + rest)
    who = orjson.loads(paths.descriptor.read_bytes())
    done = restore_agent(stage.services, paths)
    assert (done.error, done.lossy) == (None, True)
    assert "rebuilt the first record" in done.actions
    again = restore_agent(stage.services, paths)
    assert (again.actions, again.lossy) == ((), True)
    for name in ("descriptor.json", "state.json", "session.json"):
        (paths.folder / name).unlink()
    state = read_agent(paths).state
    assert (state.descriptor, state.session.provider_name) == (who, "echo")
    assert state.counters["turns"] == 1
    assert stage.send(paths, "go on").response == "go on"


def test_who_an_agent_is_is_never_guessed(stage: Any) -> None:
    """Without the first record and descriptor.json there is nothing to go by."""
    paths = stage.new()
    stage.send(paths, "hello")
    first, rest = paths.log.read_bytes().split(b"\n", 1)
    paths.log.write_bytes(b"?" * len(first) + b"\n" + rest)
    paths.descriptor.unlink()
    tree = stage.tree()
    done = restore_agent(stage.services, paths)
    assert done.error is not None
    assert done.error.kind == "invalid"
    assert stage.tree() == tree


def test_a_tail_that_lacks_only_its_newline_is_part_of_what_is_restored(stage: Any) -> None:
    """A turn.complete without its LF ends the turn; it is not aborted too."""
    paths = stage.new()
    turn = crash(stage, paths)
    done = {"turn_id": turn, "response": "", "stop_reason": "end_turn", "usage": None}
    stage.append(paths, "turn.complete", done)
    with paths.log.open("rb+") as stream:
        stream.truncate(paths.log.stat().st_size - 1)
    paths.state.unlink()
    restore_agent(stage.services, paths)
    assert stage.events(paths)[-3:] == ["turn.complete", "message.delivered", "session.state"]
    assert is_sound(stage)


def test_an_unreadable_derived_file_is_made_again(stage: Any) -> None:
    """A regular file that may not be read is replaced by one that may."""
    paths = stage.new()
    paths.history.chmod(0)
    paths.history.write_bytes(b"") if os.geteuid() == 0 else None
    assert restore_agent(stage.services, paths).actions == ("rebuilt history.jsonl",)
    assert paths.history.stat().st_mode & 0o777 == 0o600


DAMAGE = {
    "torn tail": lambda data: data[:-7],
    "nul run": lambda data: data[:300] + bytes(40) + data[340:],
    "flipped": lambda data: data.replace(b'"message.delivered"', b'"message,delivered', 1),
    "first line": lambda data: b"?" + data[1:],
    "line gone": lambda data: data[: data.index(b"\n") + 1] + data.split(b"\n", 2)[2],
    "emptied": lambda data: b"",
    "cut": lambda data: data[: data.index(b'{"seq":5')],
    "glued": lambda data: data.replace(b"\n", b"", 1),
    "not utf-8": lambda data: data.replace(b"hello", b"h\xffllo", 1),
    "garbage line": lambda data: data + b"garbage\n",
}


def test_a_hundred_agents_of_which_ten_are_damaged(stage: Any) -> None:
    """Ten are reported, 90 keep every byte and time, and a second run changes nothing."""
    first = stage.new()
    stage.send(first, "hello")
    suspend(stage.services, first)
    agents = [first]
    pattern = first.id.encode()
    files = {path: path.read_bytes() for path in first.folder.rglob("*.json*")}
    for number in range(99):
        agent_id = f"y{number:023}"
        folder = stage.root / "agents" / agent_id
        for path, data in files.items():
            target = folder / path.relative_to(first.folder)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_bytes(data.replace(pattern, agent_id.encode()))
        agents.append(AgentPaths(folder, agent_id))
    for paths in agents[1:]:
        _rechain(paths)
    damaged = agents[5::9][:10]
    for paths, harm in zip(damaged, DAMAGE.values(), strict=True):
        paths.log.write_bytes(harm(paths.log.read_bytes()))
    before = _times(stage.root)
    reported = {}
    for restored in restore_all(stage.services, agents):
        if restored.findings or restored.error or restored.actions:
            reported[restored.agent_id] = restored
    assert set(reported) == {paths.id for paths in damaged}
    changed = {path for path, seen in _times(stage.root).items() if before.get(path) != seen}
    assert {path.relative_to(stage.root).parts[1] for path in changed} <= set(reported)
    settled = _times(stage.root)
    for restored in restore_all(stage.services, agents):
        assert restored.actions == (), restored
    assert _times(stage.root) == settled


def _rechain(paths: AgentPaths) -> None:
    """Give a copied log the hashes of its own lines, and what is derived from them."""
    lines, previous = [], "0" * 16
    for line in paths.log.read_bytes().splitlines():
        record = orjson.loads(line)
        record["prev"] = previous
        lines.append(orjson.dumps(record))
        previous = line_hash(lines[-1])
    paths.log.write_bytes(b"".join(line + b"\n" for line in lines))
    (paths.folder / "state.json").unlink()
    with write_agent(paths, disk=Disk(Durability.NEVER), whole=True) as writer:
        for name in wrong_files(paths, writer.state):
            writer.rebuild(name)


def _times(root: Path) -> dict[Path, Any]:
    """Return how each file looks, and what is in each folder; but for stamps, which say that."""
    found: dict[Path, Any] = {}
    for path in root.rglob("*"):
        if path.is_dir():
            found[path] = {entry.name for entry in path.iterdir()} - {"stamps.json"}
        elif path.name != "stamps.json":
            status = path.lstat()
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def test_an_agent_that_goes_away_meanwhile_is_no_error_of_the_others(stage: Any) -> None:
    """It is reported, and the next one is restored."""
    gone, here = stage.new(), stage.new()
    crash(stage, here)
    shutil.rmtree(gone.folder)
    first, second = restore_all(stage.services, [gone, here])
    assert first.error is not None
    assert second.state == "suspended"


def test_a_torn_tail_of_a_dead_writer_is_set_apart_once(stage: Any) -> None:
    """Then no command reports it any more, and a second run appends nothing."""
    paths = stage.new()
    stage.send(paths)
    suspend(stage.services, paths)
    with paths.log.open("ab") as stream:
        stream.write(b'{"seq":11,"ts"')
    said = restore_agent(stage.services, paths, dry_run=True)
    done = restore_agent(stage.services, paths)
    assert said.actions == done.actions == ("set an unfinished write apart",)
    assert not done.lossy
    assert read_agent(paths, whole=True).torn is False
    assert is_sound(stage)
    assert restore_agent(stage.services, paths).actions == ()


@pytest.mark.feature("T-06")
@pytest.mark.parametrize("order", [1, -1], ids=["parent first", "child first"])
@pytest.mark.parametrize("how", ["shorter", "first line"])
def test_a_parent_that_waits_to_be_restored_itself_gets_the_notice_all_the_same(
    stage: Any, order: int, how: str
) -> None:
    """Whichever of them comes first; and a dry run says so."""
    parent = stage.new()
    stage.send(parent)
    child = stage.new(kind="subagent", parent=parent.id, name="reviewer")
    crash(stage, child)
    data = parent.log.read_bytes()
    if how == "shorter":
        parent.log.write_bytes(data[: data.index(b'{"seq":8')])
    else:
        parent.log.write_bytes(b"?" + data[1:])
        parent.state.unlink()
    both = [parent, child][::order]
    told = f"told its parent {parent.id}"
    assert told in [a for r in restore_all(stage.services, both, dry_run=True) for a in r.actions]
    assert told in [a for r in restore_all(stage.services, both) for a in r.actions]
    assert parent.log.read_bytes().count(b'"event":"restore"') == 1
    assert [m["sender"] for m in stage.state(parent).pending] == [child.id]
    assert [r.actions for r in restore_all(stage.services, both)] == [(), ()]
