"""Which faults a command is put under: every call that it makes, in several ways."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from fault_shim import Call, Fault, Flag, Mode
from fault_verbs import Verb

# Besides the errors that every call is given, these take turns along the trace.
OTHERS = (errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EMFILE, errno.EFBIG)
QUICK = Flag.SKIP_SYNC
STUCK = Flag.SKIP_SYNC | Flag.REFUSE_TRUNCATE


def cases(verb: Verb, calls: Iterable[Call]) -> Iterator[Fault]:
    """Yield the faults for a command that makes `calls` when nothing fails.

    A lock is never refused on its way back, and answers every error with ENOLCK (shim.c).
    """
    for call in calls:
        at, turn = call.index, call.index % 2
        yield Fault(Mode.KILL, at, 0, QUICK)
        if not (call.name == "flock" and call.detail & 8):
            errors = (errno.ENOSPC, errno.EIO)
            chosen = errors if verb.thorough and call.name != "flock" else (errors[turn],)
            for error in chosen:
                yield Fault(Mode.FAIL_ONCE, at, error, QUICK)
            if at % 5 == 0:
                yield Fault(Mode.FAIL_ONCE, at, OTHERS[at // 5 % len(OTHERS)], QUICK)
        yield Fault(Mode.FAIL_FROM, at, (errno.ENOSPC, errno.EIO, errno.EROFS)[at % 3], QUICK)
        if call.name == "write":
            yield Fault(Mode.SHORT_THEN_FAIL, at, errno.ENOSPC, QUICK)
            yield Fault(Mode.SHORT_THEN_KILL, at, 0, QUICK)
            if call.path.endswith("events.jsonl"):
                yield Fault(Mode.SHORT_THEN_FAIL, at, errno.ENOSPC, STUCK)
