"""What must hold after a command that was killed, or refused a call (SPEC.md, "Promises").

Each rule is one function that yields a sentence for each thing that does not hold.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fault_runs import Done, Runner, Tree, tree_of
from fault_shim import Call, Fault, Flag, Mode
from fault_verbs import Logs, Verb, is_log, log_writes, state_of

CODES = {0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 129, 130, 141, 143}
REFUSED = 15
WHOLE = {"descriptor.json", "session.json", "state.json", "history.jsonl", "events.jsonl"}
DERIVED = ("descriptor.json", "session.json", "state.json", "history.jsonl", "manifest.json")
SYNCS = ("fsync", "open-folder")
LOCKS = ("flock", "fcntl", "lockf")
REMOVALS = ("unlink", "rmdir")
DEADLY = (Mode.KILL, Mode.SHORT_THEN_KILL)
# What `validate` may say of a root where a writer has just died.
UNFINISHED = ("torn-tail",)


class Case(NamedTuple):
    """One command under one fault, and what it left."""

    verb: Verb
    fault: Fault
    root: Path
    before: Tree
    told: dict[str, str]
    """What `replay --events` said of each agent before."""
    done: Done
    calls: list[Call]
    after: Tree
    logged: int
    """How many writes to logs the command makes without a fault."""

    @property
    def failing(self) -> list[Call]:
        """Return the calls that were refused, or cut short."""
        return [call for call in self.calls if call.forced]

    @property
    def truncates(self) -> bool:
        """Whether a failed append could be taken back."""
        whole = self.fault.mode in (Mode.FAIL_ONCE, Mode.SHORT_THEN_FAIL)
        return whole and not self.fault.flags & Flag.REFUSE_TRUNCATE


def judge(case: Case, runner: Runner) -> list[str]:
    """Return everything that is broken."""
    rules = [_outcome, _log_grew, _documents]
    if case.fault.mode not in DEADLY:
        rules += [_refusal, _nothing_after, _appends]
    broken = [text for rule in rules for text in rule(case)]
    broken += _repeated(case, runner)
    broken += _read(case, runner)
    broken += _restored(case, runner)
    return broken


def _outcome(case: Case) -> Iterator[str]:
    fault, done = case.fault, case.done
    deadly = fault.mode in DEADLY
    if len(case.calls) < fault.at:
        yield f"the fault never came: {len(case.calls)} calls"
    if deadly != (done.signal == 9):
        yield f"killed: {deadly}, but {done}"
    if deadly:
        return
    if done.signal or done.code not in CODES:
        yield f"no documented end: {done}"
    if "Traceback" in done.err:
        yield f"a traceback: {done.err}"
    if done.code == 0 and not case.verb.done(logs_of(case.after), done):
        yield f"exit 0, and the logs do not hold it: {done}"


def _log_grew(case: Case) -> Iterator[str]:
    """No byte that stood in a log before is changed or gone."""
    for path, (_, _, data) in case.before.items():
        if path.endswith("events.jsonl") and ".tmp-" not in path:
            folder, agent, _ = Path(path).parts
            if case.verb.takes_away and f"{folder}/{agent}" not in case.after:
                path = f"archive/{agent}/events.jsonl"
                if case.verb.arguments[0] == "rm":
                    continue
            now = case.after.get(path, (0, 0, b""))[2]
            if not now.startswith(data):
                yield f"{path} lost what was acknowledged"


def _documents(case: Case) -> Iterator[str]:
    """Documents are whole; so are agents."""
    for path, (_, mode, data) in case.after.items():
        parts = Path(path).parts
        if mode & 0o077:
            yield f"{path} has mode {mode:o}"
        if any(part.startswith(".tmp-") for part in parts):
            continue
        if path.endswith(".json") and parts[-1] != "stamps.json":  # which is written in place
            try:
                json.loads(data)
            except ValueError:
                # What was damaged before need not be repaired yet.
                if data != case.before.get(path, (0, 0, b""))[2]:
                    yield f"{path} is neither the old nor the new document: {data!r}"
        if parts[:1] == ("agents",) and len(parts) == 2 and path not in case.before:
            missing = WHOLE - {Path(p).name for p in case.after if p.startswith(path + "/")}
            if missing:
                yield f"{path} appeared without {missing}"


def is_derived(call: Call) -> bool:
    """Tell whether a call is on a file that can be made again, of an agent that is there."""
    name = Path(call.target).name
    if call.target.startswith("slots/") or name == "stamps.json":
        return True
    original = name.removeprefix(".tmp-").rpartition("-")[0] if name.startswith(".tmp-") else name
    if original == "index.jsonl":
        return True
    return original in DERIVED and not call.target.startswith("agents/.tmp-")


def must_refuse(call: Call) -> bool:
    """Tell whether a command that was refused this call cannot exit 0."""
    if call.name in SYNCS:
        return True
    if call.name == "flock" and call.detail & fcntl.LOCK_SH:
        return False  # a look at whether a process is at work
    # A folder that is there already may be refused; where one is missing, what it was for fails.
    return call.name not in (*REMOVALS, "truncate", "mkdir") and not is_derived(call)


def decisive_call(case: Case) -> Call | None:
    """Return the refused call after which nothing more may be written.

    The rest of a short write may be tried, but not of a record, which is one write.
    """
    for call in case.failing:
        record = is_log(call) and ".tmp-" not in call.path
        if must_refuse(call) and (call.result == -1 or record):
            return call
    return None


def _reported(done: Done) -> list[dict[str, Any]]:
    """Return the errors that a command reports, `restore` for each agent."""
    lines = [*done.err.splitlines(), *done.out.splitlines()]
    values = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    errors = [value.get("error") or value for value in values]
    return [error for error in errors if "message" in error and "kind" in error]


def _refusal(case: Case) -> Iterator[str]:
    """Exit 15 says what was refused; 0 is only for what can be made again."""
    failing, done = case.failing, case.done
    if not failing:
        return
    if done.code not in (0, REFUSED):
        yield f"{failing[0]}: neither done nor refused: {done}"
        return
    decisive = [call for call in failing if must_refuse(call)]
    if done.code == 0:
        if log_writes(case.calls) == case.logged:  # what was for derived files alone may fail
            decisive = [call for call in decisive if Path(call.path).name != ".lock"]
        if decisive:
            yield f"{decisive[0]}: exit 0"
        return
    errors = _reported(done)
    if not errors:
        yield f"{failing[0]}: exit 15 without an error: {done}"
    for error in errors:
        says = [os.strerror(call.error) for call in failing if call.error] or ["only a part"]
        if not any(text in error["message"] for text in [*says, "only a part"]):
            yield f"{failing[0]}: the message does not say why: {error}"
        if str(case.root) not in error["message"]:
            yield f"{failing[0]}: the message does not say what: {error}"
    sync = (decisive or failing)[0].name in SYNCS
    # `restore` goes on with the other agents, each of which is refused in its own way.
    wanted = "uncertain" if sync else "not-recorded"
    if case.verb.takes_away and (decisive or failing)[0].path.startswith("agents/.tmp-removed-"):
        wanted = "half-removed"
    if wanted not in {error["kind"] for error in errors}:
        yield f"{(decisive or failing)[0]}: {errors}"


def _nothing_after(case: Case) -> Iterator[str]:
    """When the disk refused, nothing more is written to that agent."""
    decisive = decisive_call(case)
    if decisive is None or case.done.code == 0:
        return
    agent = Path(decisive.path).parts[:2]
    for call in case.calls[decisive.index :]:
        harmless = (
            call.name in (*REMOVALS, *LOCKS, "truncate")
            or Path(call.path).name in (".lock", ".turn")
            or Path(call.path).parts[:2] != agent
        )
        if not harmless:
            yield f"after {decisive} came {call}"
            return


def _appends(case: Case) -> Iterator[str]:
    """A log holds the whole lines whose write succeeded, and of the others nothing."""
    if not case.truncates:
        return
    for path, (_, _, data) in case.after.items():
        if not path.endswith("/events.jsonl") or ".tmp-" in path or path not in case.before:
            continue
        old = case.before[path][2]
        writes = [c for c in case.calls if c.path == path and c.name == "write"]
        size = len(old) + sum(c.detail for c in writes if c.result == c.detail)
        if len(data) != size:
            yield f"{path} has {len(data)} bytes, {size} were recorded"
        if data.endswith(b"\n") < old.endswith(b"\n"):
            yield f"{path} ends in a stub"


def _read(case: Case, runner: Runner) -> Iterator[str]:
    """Everything can be read, nothing is damaged, and reading changes no byte."""
    agents = sorted(logs_of(case.after))
    steps = [["tree"], ["list"]]
    for agent in agents:
        steps += [["inspect", agent], ["replay", agent, "--events"]]
    *results, after = runner.sound(case.root, [*steps, ["validate", "--json"], ["tree"]])
    before, listed, *results, checked = results
    if before != after:
        yield f"reading changed {_changed(before, after)}"
    torn = any(ends_in_tail(case.after, agent) for agent in agents)
    if listed.code != (3 if torn else 0) or {row["agentId"] for row in listed.rows} != set(agents):
        yield f"list: {listed}"
    for agent, inspected, replayed in zip(agents, results[::2], results[1::2], strict=True):
        torn = ends_in_tail(case.after, agent)
        ids = {finding["id"] for finding in inspected.document["findings"]}
        if inspected.code != (3 if torn else 0) or ids - {"torn-tail", "stub"}:
            yield f"inspect: {inspected}"
        told = case.told.get(agent, "")
        if replayed.code != (3 if torn else 0) or not replayed.out.startswith(told):
            yield f"replay: {replayed}"
    if "agentsdir.json" in case.after:
        damaged = {path for path in case.before if _damaged(case.before[path][2], path)}
        for problem in checked.rows:
            file = os.path.relpath(problem["file"], case.root)
            bad = problem["severity"] == "error" or problem["severity"] == "warning"
            known = problem["id"] in UNFINISHED or file in damaged or problem["id"] == "missing"
            if bad and not known:
                yield f"validate: {problem}"


def _damaged(data: bytes, path: str) -> bool:
    return path.endswith((".json", ".jsonl")) and not data.endswith((b"}\n", b"]\n"))


def _restored(case: Case, runner: Runner) -> Iterator[str]:
    """`restore` brings every agent to rest, once; after that a send works."""
    agents = sorted(logs_of(case.after))
    steps = [["restore", "--json"], ["tree"], ["validate", "--json"]]
    first, once, checked, second, twice = runner.sound(
        case.root, [*steps, ["restore", "--json"], ["tree"]]
    )
    if first.code or second.code:
        yield f"restore: {first}; again: {second}"
    # A stamp says that the second one has read the agent, and found it in order.
    if changed := [path for path in _changed(once, twice) if not path.endswith("/stamps.json")]:
        yield f"the second restore changed {changed}"
    if "agentsdir.json" in once and checked.code:
        yield f"validate after restore: {checked}"
    if left := [path for path in once if ".tmp-" in path]:
        yield f"restore left {left}"
    for agent, records in logs_of(once).items():
        if state_of(records) == "active":
            yield f"{agent} is still active"
        if Counter(map(_ends, records))["turn"] != Counter(map(_ends, records))["end"]:
            yield f"{agent} has an open turn"
    # One of them in turn: a send is what takes longest here.
    turn = agents[case.fault.at % len(agents)] if agents else ""
    steps = [["send", turn, "afterwards", "--json"] if turn else ["new"]]
    if any(ends_in_tail(case.after, agent) for agent in agents):
        steps.append(["validate"])  # nothing else shows what became of a stub
    *sent, last = runner.sound(case.root, [*steps, ["tree"]])
    for done in sent:
        if done.code:
            yield f"send or validate after restore: {done}"
    for agent, records in logs_of(last).items():
        yield from _settled(agent, records, all_run=agent == turn)


def _ends(record: dict[str, Any]) -> str:
    kind, _, end = record["event"].partition(".")
    return ("turn" if end == "start" else "end") if kind == "turn" else ""


def _settled(agent: str, records: list[dict[str, Any]], *, all_run: bool) -> Iterator[str]:
    """Every message was run at most once, and is settled once: at the next send, if not before."""
    by_event: dict[str, list[str]] = {"message.enqueued": [], "message.delivered": []}
    started = Counter(
        message
        for record in records
        if record["event"] == "turn.start"
        for message in record["data"]["message_ids"]
    )
    for record in records:
        if record["event"] in by_event:
            by_event[record["event"]].append(record["data"]["message_id"])
    if any(count > 1 for count in started.values()):
        yield f"{agent} ran a message twice: {started}"
    settled = sorted(by_event["message.delivered"])
    wanted = sorted(by_event["message.enqueued"] if all_run else started)
    if settled != wanted:
        yield f"{agent} has messages that are not settled: {by_event}"


def _repeated(case: Case, runner: Runner) -> Iterator[str]:
    """A command that was refused works when it is given again."""
    if case.done.code != REFUSED:
        return
    copy = case.root.with_name("repeated")
    if case.root.exists():
        shutil.copytree(case.root, copy)
    again, checked = runner.sound(copy, [case.verb.arguments, ["validate", "--json"]])
    # It may stand in the log, although no command confirmed it.
    allowed = (0, case.verb.again) if _uncertain(case) else (0,)
    if again.code not in allowed:
        yield f"repeated: {again}"
    if any(problem["severity"] == "error" for problem in checked.rows):
        yield f"validate after repeating: {checked}"
    shutil.rmtree(copy)


def _uncertain(case: Case) -> bool:
    return any(e["kind"] in ("uncertain", "half-removed") for e in _reported(case.done))


def logs_of(tree: Tree) -> Logs:
    """Return the readable records of every agent's log, read without the product's help."""
    logs = {}
    for path, (_, _, data) in tree.items():
        parts = Path(path).parts
        if len(parts) != 3 or parts[0] != "agents" or parts[1].startswith(".tmp-"):
            continue
        if parts[2] == "events.jsonl":
            logs[parts[1]] = [r for r in map(_record, data.split(b"\n")) if r is not None]
    return logs


def ends_in_tail(tree: Tree, agent: str) -> bool:
    """Tell whether an agent's log ends in an unterminated line."""
    return not tree[f"agents/{agent}/events.jsonl"][2].endswith(b"\n")


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _changed(old: Tree, new: Tree) -> list[str]:
    return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))


def picture(runner: Runner, root: Path) -> tuple[Tree, dict[str, str]]:
    """Return what stands in a root that was prepared, and what its agents tell."""
    tree = tree_of(root)
    agents = sorted(logs_of(tree))
    told = runner.sound(root, [["replay", agent, "--events"] for agent in agents])
    return tree, {agent: done.out for agent, done in zip(agents, told, strict=True)}
