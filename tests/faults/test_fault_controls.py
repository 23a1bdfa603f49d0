"""The rules can fail: a product or a disk that is broken on purpose breaks them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from fault_shim import Call, Fault, Flag, Mode
from fault_verbs import is_log

QUICK = Flag.SKIP_SYNC


def broken(rig: Any, verb: str, fault: Fault, patch: str = "") -> str:
    """Return the rules that one case broke."""
    (verdict,) = rig.run(verb, [fault], patch)
    return "\n".join(verdict.broken)


def first(rig: Any, verb: str, wanted: Callable[[Call], bool]) -> int:
    """Return the first call of a sound command that is as wanted."""
    return next(call.index for call in rig.sound(verb).calls if wanted(call))


def writes_log(call: Call) -> bool:
    """Tell whether a call writes to a log."""
    return call.name == "write" and is_log(call)


def test_a_stub_that_is_not_isolated_is_seen(rig: Any) -> None:
    """Without the LF rule the next record shares the line of a write that could not be undone."""
    assert not broken(rig, "send, after a stub", Fault())
    assert "splice" in broken(rig, "send, after a stub", Fault(), "join_lines")


def test_a_truncation_that_is_lost_is_seen(rig: Any) -> None:
    """A disk that says yes to a truncation and does nothing leaves a stub."""
    at = first(rig, "resume", writes_log)
    lost = Fault(Mode.SHORT_THEN_FAIL, at, errno.ENOSPC, QUICK | Flag.LOSE_TRUNCATE)
    assert "ends in a stub" in broken(rig, "resume", lost)


def test_an_acknowledgement_before_the_write_is_seen(rig: Any) -> None:
    """A command that exits 0 although its record was refused has lied."""
    fault = Fault(Mode.FAIL_ONCE, first(rig, "resume", writes_log), errno.ENOSPC, QUICK)
    said = broken(rig, "resume", fault, "acknowledge_anyway")
    assert "the logs do not hold it" in said
    assert "No space left on device: exit 0" in said


def test_a_sync_that_fails_unnoticed_is_seen(rig: Any) -> None:
    """A command that exits 0 although the disk would not confirm has lied."""
    at = first(rig, "resume", lambda call: call.name == "fsync" and is_log(call))
    fault = Fault(Mode.FAIL_ONCE, at, errno.EIO, QUICK)
    assert "Input/output error: exit 0" in broken(rig, "resume", fault, "ignore_sync_errors")


def test_half_a_document_is_seen(rig: Any) -> None:
    """A document that is written in place is neither the old nor the new one after a kill."""
    (traced,) = rig.run("resume", [Fault()], "write_in_place")
    for name in ("session.json", "state.json"):
        writes = [c for c in traced.calls if c.name == "write" and c.path.endswith("/" + name)]
        fault = Fault(Mode.SHORT_THEN_KILL, writes[0].index, 0, QUICK)
        said = broken(rig, "resume", fault, "write_in_place")
        assert f"{name} is neither the old nor the new document" in said


def test_half_an_agent_is_seen(rig: Any) -> None:
    """An agent whose files come one after the other is there without some of them."""
    (traced,) = rig.run("new, beside another", [Fault()], "publish_in_pieces")
    calls = [call.index for call in traced.calls if "agents/.tmp-" not in call.path]
    middle = next(c for c in traced.calls if c.index in calls and c.path.endswith("state.json"))
    fault = Fault(Mode.KILL, middle.index, 0, QUICK)
    said = broken(rig, "new, beside another", fault, "publish_in_pieces")
    assert "appeared without" in said


def test_a_fault_that_never_comes_is_seen(rig: Any) -> None:
    """A case whose call is not reached would prove nothing."""
    assert "the fault never came" in broken(rig, "resume", Fault(Mode.FAIL_ONCE, 999, errno.EIO))
