"""`restore`: brings every agent without a holder to a legal state (decisions D3, D11).

It is idempotent: a healthy agent is not changed. The plan is made first, by reading only; a dry run
prints it. An agent that cannot be restored does not stop the others.
"""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine import workers
from agentsdir.engine.close import is_finished_but_for_turn, remove_if_finished, unfinished_steps
from agentsdir.engine.hooks import session_closed
from agentsdir.engine.lookup import hold_create_lock, make_index
from agentsdir.engine.notices import Step, apply_steps, loss_steps
from agentsdir.engine.outbox import UntriedTexts, deliver_waiting
from agentsdir.engine.recovery import (
    CrashPlan,
    RecoveryRecords,
    agents_with_unsent,
    missing_child_steps,
    missing_parent_steps,
    plan_crash,
    receive_steps,
    resend_steps,
)
from agentsdir.engine.turn_lock import has_leftovers, hold_turn
from agentsdir.formats.errors import AgentsdirError, Busy, Invalid, ProviderError
from agentsdir.formats.findings import Finding
from agentsdir.formats.store import derived, files, locks, stamps
from agentsdir.formats.store.agent import (
    HistoryComparison,
    read_agent,
    without_live_tail,
    write_agent,
    wrong_files,
)
from agentsdir.formats.store.events import BROKEN
from agentsdir.formats.store.layout import MAX_DOCUMENT, TEMPORARY, read_bytes, read_json
from agentsdir.formats.store.log import tail_is_record
from agentsdir.formats.store.slots import Slots
from agentsdir.formats.store.stamps import Stamp
from agentsdir.formats.store.state import SessionState
from agentsdir.formats.store.transcripts import unfinished_rewrites

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentsdir.engine.services import Services
    from agentsdir.formats.store.agent import Reading
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

_STOPPED = "ended what a dead turn's program left running"
_ENDED = "ended a record that lacked only its newline"
_OFFERED = "offered what waits in its outbox to the hook"
_REMOVED = "removed: it was ephemeral, and its work is over"


class Restored(NamedTuple):
    """What `restore` did, or would do, to one agent. `state` is None if it cannot be read."""

    agent_id: str
    state: str | None
    actions: tuple[str, ...]
    findings: tuple[Finding, ...]
    error: AgentsdirError | None

    @property
    def lossy(self) -> bool:
        """Whether acknowledged records cannot be read any more."""
        # A torn tail was never acknowledged, and there is no writer.
        lost = (finding for finding in self.findings if finding.id != "torn-tail")
        return self.error is not None or any(finding.is_damage for finding in lost)

    def as_json(self) -> dict[str, Any]:
        """Return one line of `restore --json`."""
        error = self.error
        return {
            "type": "restored",
            "agentId": self.agent_id,
            "state": self.state,
            "actions": list(self.actions),
            "findings": [finding.as_json() for finding in self.findings],
            "error": {"kind": error.kind, "message": error.message} if error else None,
        }


class _Survey(NamedTuple):
    """What one reading of an agent's log gave: all that a plan needs of it.

    `stamp` is how the log looked before, `files` the derived files that are not what it says.
    """

    stamp: Stamp | None
    reading: Reading
    records: RecoveryRecords
    texts: UntriedTexts
    files: list[str]


class _Plan(NamedTuple):
    """What one agent needs: records about losses, files, then records that close and suspend.

    `runs` is whether a dead holder's program still does; the next holder ends it. `offers_texts` is
    whether a text waits that a hook, if there is one, has not been given: no action before it was
    done. `removes` is whether the agent is removed in the end, `closes` whether it is closed as
    an ancestor was.
    """

    survey: _Survey
    ends_tail: bool
    runs: bool
    losses: list[Step]
    rewrites: list[str]
    files: list[str]
    leftovers: list[Path]
    steps: list[Step]
    crash: CrashPlan
    offers_texts: bool
    removes: bool
    closes: bool
    findings: tuple[Finding, ...]

    @property
    def needs_work(self) -> bool:
        return bool(self.actions) or self.offers_texts

    @property
    def actions(self) -> tuple[str, ...]:
        return (
            *([_STOPPED] if self.runs else []),
            *([_ENDED] if self.ends_tail else []),
            *(step.summary for step in self.losses),
            *(f"put {name} in place" for name in self.rewrites),
            *(f"rebuilt {name}" for name in self.files),
            *(f"removed {path.name}" for path in self.leftovers),
            *(step.summary for step in self.steps),
            *(f"removed {path.name}" for path in self.crash.streams),
            *([_REMOVED] if self.removes else []),
        )


def restore_all(
    services: Services,
    agents: list[AgentPaths],
    *,
    dry_run: bool = False,
    full: bool = True,
    jobs: int = 1,
) -> Iterator[Restored]:
    """Restore each agent and yield what was done.

    Args:
        services: of the root.
        agents: in the order in which they are restored.
        dry_run: only yield what would be done.
        full: also read agents that a command left in order (SPEC.md, "Stamps").
        jobs: how many processes read (`workers.deal`). Then this process alone writes.
    """
    senders = agents_with_unsent(services.layout, {paths.id for paths in agents})
    unread: dict[str, Restored] = {}
    if not full:
        candidates = [paths for paths in agents if paths.id not in senders]
        unread = {paths.id: one for paths in candidates if (one := _left_in_order(paths))}
    rest = [paths for paths in agents if paths.id not in unread]
    restored = _restore_each(services, rest, senders, dry_run=dry_run, jobs=jobs)
    for paths in agents:
        yield unread[paths.id] if paths.id in unread else next(restored)


def restore_root(services: Services) -> list[Restored]:
    """Restore all agents, and remove what dead processes left; return what was done to each.

    Agents that a command left in order are not read. Raises what `sweep_root` raises.
    """
    services.layout.check_version(writing=True)
    sweep_root(services)
    return list(restore_all(services, services.layout.every_agent(), full=False))


def _restore_each(
    services: Services,
    agents: list[AgentPaths],
    senders: dict[str, list[AgentPaths]],
    *,
    dry_run: bool,
    jobs: int,
) -> Iterator[Restored]:
    if jobs == 1 or len(agents) < _MANY:
        for paths in agents:
            yield restore_agent(services, paths, dry_run=dry_run, senders=senders.get(paths.id, []))
        return
    look = partial(_look_at, services, senders=senders, dry_run=dry_run)
    with closing(workers.deal(agents, look, size=_weight, jobs=jobs)) as results:
        notes = [result.note for result in results]
    has_acted = False
    for paths, note in zip(agents, notes, strict=True):
        seen = _Seen.decode(paths, note) if note else None
        if seen is None or not (dry_run or seen.is_current(paths, has_acted=has_acted)):
            has_acted = True
            own = senders.get(paths.id, [])
            yield restore_agent(services, paths, dry_run=dry_run, senders=own)
            continue
        if not (dry_run or seen.restored.findings):
            _leave_stamp(services, paths, seen.stamp)
        yield seen.restored


# An agent that a command left in order is not read (SPEC.md, "Stamps").


def _left_in_order(paths: AgentPaths) -> Restored | None:
    """Return what is said of an agent that was left in order and has nothing open.

    None for any other, and for one whose state depends on other agents: these are read.
    """
    try:
        if not stamps.is_untouched(paths):
            return None
        # Of a stranger's state.json, whose stamp is a stranger's too, nothing but the word is used.
        data = read_bytes(f"{paths.folder}/state.json", MAX_DOCUMENT)
        document = derived.unchecked_document(data)
        state = SessionState(document["state"])
        if _has_something_open(document) or not _is_tidy(paths):
            return None
    except (FileNotFoundError, Invalid, OSError, *BROKEN):
        return None
    return Restored(paths.id, state.value, (), (), None)


def _has_something_open(document: dict[str, Any]) -> bool:
    """Return whether what state.json says needs a look at the log, or at other agents."""
    state = document["state"]
    return bool(
        state == SessionState.ACTIVE
        or (state == SessionState.TERMINATED and document["pending"])
        or document["openTurn"]
        or document["children"]
        or document["undelivered"]
        or document["ephemeral"]
        or document.get("unsent")
        or "parentAgentId" in document["descriptor"]
    )


def _is_tidy(paths: AgentPaths) -> bool:
    """Return whether no dead writer left anything in the folder, and no process holds `.turn`."""
    folders = [str(paths.folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.startswith(TEMPORARY):
                    return False
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    turn = f"{paths.folder}/.turn"
    try:
        has_note = os.lstat(turn).st_size > 0
    except FileNotFoundError:
        return True
    return not (has_note or locks.is_held(turn))


def _leave_stamp(services: Services, paths: AgentPaths, stamp: Stamp | None) -> None:
    """Have the next `restore` pass over an agent that was read whole and is in order.

    Nothing is done where the log is another by now, where a process is at work, or where none was
    yet, as in a fresh copy: to a healthy agent `restore` adds no file but the stamps.
    """
    with suppress(AgentsdirError):
        if not paths.lock.exists() or stamps.is_untouched(paths) or locks.is_held(paths.lock):
            return
        with write_agent(paths, disk=services.disk) as writer:
            if _stamp(paths) == stamp:
                writer.leave_stamp()


# Agents are read by many processes, then written by this one: locks, hooks, and what a command
# makes durable at its end belong to one process. So the others only say which need nothing.

_MANY = 128  # agents; for fewer no process is started
_SMALL = 64 * 1024  # bytes of log that are read in the time that an agent without any takes


class _Seen(NamedTuple):
    """An agent that needs nothing, or, in a dry run, what would be done to it.

    `stamp` is how its log looked. `is_alone` is whether this depends on its own log only.
    """

    restored: Restored
    stamp: Stamp | None
    is_alone: bool

    def is_current(self, paths: AgentPaths, *, has_acted: bool) -> bool:
        """Return whether this still holds: what was done to other agents may have changed it."""
        return (self.is_alone or not has_acted) and _stamp(paths) == self.stamp

    def encode(self) -> bytes:
        """Return this without the agent's id. Not with orjson: names may hold odd bytes."""
        done = self.restored
        values = (done.state, done.actions, done.findings, self.stamp, self.is_alone)
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, paths: AgentPaths, data: bytes) -> _Seen:
        """Return what was encoded."""
        state, actions, findings, stamp, is_alone = json.loads(data)
        found = tuple(Finding(*values) for values in findings)
        restored = Restored(paths.id, state, tuple(actions), found, None)
        return cls(restored, Stamp(*stamp) if stamp else None, is_alone)


def _weight(paths: AgentPaths) -> int:
    """Return how many bytes the reading of an agent is worth."""
    stamp = _stamp(paths)
    return _SMALL + (stamp.size if stamp else 0)


def _look_at(
    services: Services,
    paths: AgentPaths,
    *,
    senders: dict[str, list[AgentPaths]],
    dry_run: bool,
) -> tuple[bytes, tuple[()]]:
    """Return what was seen of an agent, encoded; nothing if it has to be restored. Writes nothing.

    Nor for one that cannot be read, or is held: `restore_agent` says what about it.
    """
    own = senders.get(paths.id, [])
    try:
        if locks.is_held(paths.turn):
            return b"", ()
        plan = _plan(services, paths, own, _survey(paths))
    except (AgentsdirError, OSError, MemoryError):
        return b"", ()
    if plan.needs_work and not dry_run:
        return b"", ()
    state = plan.survey.reading.state
    is_alone = not (state.parent or state.children or state.unsent or own)
    restored = Restored(paths.id, state.session.state.value, plan.actions, plan.findings, None)
    return _Seen(restored, plan.survey.stamp, is_alone).encode(), ()


def restore_agent(
    services: Services,
    paths: AgentPaths,
    *,
    dry_run: bool = False,
    senders: list[AgentPaths] | None = None,
) -> Restored:
    """End what a crash left open, suspend the session, and rebuild wrong derived files.

    Args:
        dry_run: return the plan only; nothing is written and no lock is taken.
        senders: the agents that may have unsent messages for it; None searches for them.
    """
    if senders is None:
        senders = agents_with_unsent(services.layout, {paths.id}).get(paths.id, [])
    done: list[str] = []
    state: str | None = None
    try:
        if locks.is_held(paths.turn):
            return _held(paths)
        plan = _plan(services, paths, senders, _survey(paths))
        reading = plan.survey.reading
        state = reading.state.session.state.value
        may_be_over = bool(plan.removes or reading.state.unsent)
        if dry_run or not plan.needs_work:
            if not (dry_run or plan.findings):
                _leave_stamp(services, paths, plan.survey.stamp)
            return Restored(paths.id, state, plan.actions, plan.findings, None)
        with (
            hold_turn(paths),
            services.disk.synced_at_end(),
        ):
            done += [_STOPPED] if plan.runs else []
            survey = plan.survey
            if reading.torn or _stamp(paths) != survey.stamp:
                with write_agent(paths, disk=services.disk, whole=True) as writer:
                    done += [_ENDED] if writer.ended_tail else []
                survey = _survey(paths)
            # Other agents may have gone on meanwhile.
            state = _carry_out(services, paths, _plan(services, paths, senders, survey), done)
        if may_be_over and remove_if_finished(services, paths):
            done.append(_REMOVED)
        return Restored(paths.id, state, tuple(done), plan.findings, None)
    except Busy:
        return _held(paths)
    except AgentsdirError as error:
        return Restored(paths.id, state, tuple(done), (), error)
    except OSError as error:
        refused = Invalid(f"cannot read {error.filename}: {error.strerror}", kind="unreadable")
        return Restored(paths.id, state, tuple(done), (), refused)
    except MemoryError:
        refused = Invalid(f"cannot read {paths.folder}: not enough memory", kind="unreadable")
        return Restored(paths.id, state, tuple(done), (), refused)


def _held(paths: AgentPaths) -> Restored:
    return Restored(paths.id, "active", ("left alone: a living process holds it",), (), None)


def _stamp(paths: AgentPaths) -> Stamp | None:
    try:
        return Stamp.of(paths.log.lstat())
    except FileNotFoundError:
        return None


def _survey(paths: AgentPaths) -> _Survey:
    """Read an agent's log once (errors of `read_agent`)."""
    stamp = _stamp(paths)
    records, texts = RecoveryRecords(), UntriedTexts()
    with HistoryComparison(paths) as history:

        def follow(state: AgentState, record: Record | None) -> None:
            if record is not None:
                records.take(state, record)
                texts.take(record)

        reading = read_agent(paths, whole=True, follow=follow, history=history.take)
        return _Survey(stamp, reading, records, texts, wrong_files(paths, reading.state, history))


def _plan(
    services: Services, paths: AgentPaths, senders: list[AgentPaths], survey: _Survey
) -> _Plan:
    layout, reading = services.layout, survey.reading
    found = without_live_tail(paths, reading.findings)
    # A stub was reported when it was made; it holds no acknowledged record.
    news = (finding for finding in found if finding.id != "stub")
    findings = (*news, *_compare_descriptor(paths, reading))
    ending = unfinished_steps(layout, paths, reading.state)
    crash = plan_crash(layout, paths, reading.state, survey.records)
    steps = [
        *crash.steps,
        *missing_child_steps(layout, paths, reading.state),
        *missing_parent_steps(layout, paths, reading.state, survey.records.first_turn),
        *resend_steps(layout, reading.state),
        *receive_steps(layout, paths, reading.state, senders),
        *(ending or _suspension(reading)),
    ]
    losses = loss_steps(reading)
    ends_tail = reading.torn and tail_is_record(paths.log, reading.state.position)
    if reading.torn and not (
        ends_tail or losses or any(step.event and not step.to for step in steps)
    ):
        # Any append sets the unfinished write apart; this one does if there is no other.
        notice = "a write that was never finished, nor acknowledged, was set apart"
        losses = [Step("set an unfinished write apart", "restore", {"notice": notice})]
    copies = unfinished_rewrites(paths, reading.state.synced)
    return _Plan(
        survey,
        ends_tail,
        has_leftovers(paths),
        losses,
        [path.name for path in copies.values()],
        survey.files,
        [path for path in files.leftovers(paths.folder) if path not in copies],
        steps,
        crash,
        survey.texts.is_waiting(reading.state) and _may_deliver(services, reading.state),
        is_finished_but_for_turn(reading.state),
        bool(ending),
        findings,
    )


def _carry_out(services: Services, paths: AgentPaths, plan: _Plan, done: list[str]) -> str:
    """Carry out a plan, add each action to `done`, and return the state afterwards."""
    state = plan.survey.reading.state
    if plan.losses or plan.rewrites or plan.files or plan.leftovers:
        # A log that has lost records is read again: no other reading lets a writer go on.
        known = None if plan.losses else state
        with write_agent(paths, disk=services.disk, whole=known is None, known=known) as writer:
            for step in plan.losses:
                writer.append(step.event, step.data or {}, services.now())
                done.append(step.summary)
            done += [f"put {name} in place" for name in writer.finish_rewrites()]
            for name in plan.files:
                writer.rebuild(name)
                done.append(f"rebuilt {name}")
            for path in plan.leftovers:
                writer.remove(path)
                done.append(f"removed {path.name}")
            state = writer.state
    state = apply_steps(services, paths, state, plan.steps, done)
    if plan.crash.streams:
        with write_agent(paths, disk=services.disk, known=state) as writer:
            for path in plan.crash.streams:
                writer.remove(path)
                done.append(f"removed {path.name}")
    plan.crash.run_hooks(services, paths, state)
    if plan.closes:
        session_closed(services, paths, "parent", state)
    if state.session.state is not SessionState.ACTIVE:
        Slots(services.layout).leave(paths.id)
    written = any(step.event == "outgoing" for step in plan.steps)
    if plan.offers_texts or (written and _may_deliver(services, state)):
        handed = deliver_waiting(services, paths, state)
        done += [_OFFERED] if plan.offers_texts and not handed.no_hook else []
    return state.session.state.value


def _may_deliver(services: Services, state: AgentState) -> bool:
    """Return whether texts may go to the user's hook: not those of a root that is not trusted.

    Nor those of a closed agent: its log takes no `hook.failed`, so they would be offered each time.
    """
    if state.session.state is SessionState.TERMINATED:
        return False
    try:
        services.check_trust()
    except ProviderError:
        return False
    return True


def _compare_descriptor(paths: AgentPaths, reading: Reading) -> list[Finding]:
    """Return a finding if descriptor.json differs from the log; the log is right (D4)."""
    path = paths.descriptor
    try:
        differs = read_json(path) != reading.state.descriptor
    except FileNotFoundError:
        return []
    except Invalid:
        differs = True
    message = "descriptor.json is not what the first event says; the event stands"
    return [Finding("descriptor-differs", str(path), message)] if differs else []


def _suspension(reading: Reading) -> list[Step]:
    if reading.state.session.state is not SessionState.ACTIVE:
        return []
    change = {"from": "active", "to": "suspended", "reason": "restore"}
    return [Step("suspended", "session.state", change)]


def sweep_root(services: Services, *, dry_run: bool = False) -> list[Path]:
    """Remove the temporary files of processes that died; return their paths.

    The index is made anew where it does not count, as in a root that was copied. Raises
    `NotRecorded` when the disk refuses, `Busy` when another process makes an agent for long.
    """
    layout = services.layout
    if dry_run or not _root_leftovers(layout):
        if not dry_run:
            make_index(layout)
        return _root_leftovers(layout)
    with hold_create_lock(layout):
        found = _root_leftovers(layout)
        for path in found:
            files.remove(path)
    return found


def _root_leftovers(layout: Layout) -> list[Path]:
    folders = (layout.root, layout.agents, layout.routes)
    return sorted(
        path
        for folder in folders
        if not folder.is_symlink()
        for path in folder.glob(f"{TEMPORARY}*")
    )
