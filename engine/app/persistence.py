"""Saving a session to a store of snapshots, and restoring it from there.

The log is the truth (docs/library.md, "Snapshots"): it has what a snapshot of the session has.
What is restored is what a snapshot has and the log lacks: the runner's own state, what a callback
has migrated, and all of it where the agent is not in this root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.data import set_data
from agentsdir.engine.hooks import record_failure
from agentsdir.engine.runner import runner_errors
from agentsdir.engine.snapshots import check_snapshot
from agentsdir.formats.errors import NoSuchAgent, Terminated
from agentsdir.formats.store.agent import write_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentsdir.engine.app.session import Session
    from agentsdir.engine.app.session_store import SessionStore, Snapshot

_DATA = {"comState": "com", "dataCache": "data"}
_NO_SNAPSHOT: Snapshot = {"timeline": [], "comState": {}, "dataCache": {}}


class ResolveContext(NamedTuple):
    """What a function of `resolve` is given.

    Attributes:
        session: the one that is restored, or made.
        snapshot: what it is restored from; None for a session that no store has.
    """

    session: Session
    snapshot: Snapshot | None


def persist(session: Session, store: SessionStore) -> None:
    """Save a session. What fails is recorded as `hook.failed`, and the session goes on."""
    callbacks = session.callbacks()
    try:
        snapshot = session.snapshot()
        if (runner := session.runner) is not None:
            with runner_errors(runner.name):
                snapshot = runner.on_persist(session, snapshot) or snapshot
        chosen = callbacks.before_persist(snapshot)
        if chosen is None:
            return
        store.save(session.stored_as, chosen)
    except (NoSuchAgent, Terminated):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001, what is the program's may raise anything
        services = session.app.services()
        why = f"the session was not saved: {error}"
        services.notify_user(f"{session.id}: {why}")
        record_failure(services, session.paths, "persist", why)
        return
    callbacks.after_persist(chosen)


def restore(session: Session, stored: Snapshot, *, is_new: bool, applies: bool) -> Snapshot:
    """Restore a session from a snapshot of a store; return the snapshot as it was restored.

    Args:
        is_new: whether the agent was made for it, so that its log has nothing of it.
        applies: whether the timeline and the data are applied (layer 1 of the seed).

    Raises `SessionStateError` (kind ``cancelled``) if `on_before_restore` says no, `Invalid` (kind
    ``bad-snapshot``), and what the runner raises.
    """
    callbacks = session.callbacks()
    snapshot = check_snapshot(callbacks.before_restore(stored))
    if applies:
        _apply(session, _NO_SNAPSHOT if is_new else stored, snapshot)
    if (runner := session.runner) is not None:
        with runner_errors(runner.name):
            runner.on_restore(session, snapshot)
        services = session.app.services()
        with (
            services.disk.synced_at_end(),
            write_agent(session.paths, disk=services.disk) as writer,
        ):
            writer.append("runner.restored", {"name": runner.name}, services.now())
    callbacks.after_restore(snapshot)
    return snapshot


def _apply(session: Session, before: Mapping[str, Any], snapshot: Snapshot) -> None:
    """Record what differs in a snapshot from what the log is known to have."""
    if snapshot["timeline"] != before.get("timeline"):
        session.timeline.set(snapshot["timeline"])
    for key, scope in _DATA.items():
        had = before.get(key) or {}
        gone = dict.fromkeys(had.keys() - snapshot[key].keys())
        changed = {name: value for name, value in snapshot[key].items() if had.get(name) != value}
        if values := {**gone, **changed}:
            set_data(session.app.services(), session.paths, scope, values)


def resolved(
    resolve: Mapping[str, Callable[[ResolveContext], Any]],
    session: Session,
    snapshot: Snapshot | None,
) -> dict[str, Any]:
    """Return what the functions of `resolve` return, by their keys. What they raise passes."""
    context = ResolveContext(session, snapshot)
    return {key: function(context) for key, function in resolve.items()}
