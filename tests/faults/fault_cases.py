"""Which faults a command is put under: every call that it makes, in several ways."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterable, Iterator

from fault_shim import Call, Fault, Flag, Mode
from fault_verbs import Matrix, Verb

# Besides the errors that every call is given, these take turns along the trace.
OTHERS = (errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EMFILE, errno.EFBIG)
QUICK = Flag.SKIP_SYNC
STUCK = Flag.SKIP_SYNC | Flag.REFUSE_TRUNCATE


def cases(verb: Verb, calls: Iterable[Call]) -> Iterator[Fault]:
    """Yield the faults for a command that makes `calls` when nothing fails.

    A lock is never refused on its way back, and answers every error with ENOLCK (shim.c).
    """
    for call in calls:
        at = call.index
        yield Fault(Mode.KILL, at, 0, QUICK)
        if not gives_back(call):
            for error in _errors(verb.matrix, call):
                yield Fault(Mode.FAIL_ONCE, at, error, QUICK)
        if at % 2 or verb.matrix is not Matrix.THIN:
            yield Fault(Mode.FAIL_FROM, at, (errno.ENOSPC, errno.EIO, errno.EROFS)[at % 3], QUICK)
        if call.name == "write":
            yield Fault(Mode.SHORT_THEN_FAIL, at, errno.ENOSPC, QUICK)
            yield Fault(Mode.SHORT_THEN_KILL, at, 0, QUICK)
            if call.path.endswith("events.jsonl"):
                yield Fault(Mode.SHORT_THEN_FAIL, at, errno.ENOSPC, STUCK)


def gives_back(call: Call) -> bool:
    """Tell whether a call gives a lock back."""
    return call.name == "flock" and bool(call.detail & fcntl.LOCK_UN)


def _errors(matrix: Matrix, call: Call) -> list[int]:
    both = [errno.ENOSPC, errno.EIO]
    if call.name == "flock":
        return both[:1]
    chosen = [both[call.index % 2]]
    if call.index % 5 == 0 and matrix is not Matrix.THIN:
        chosen.append(OTHERS[call.index // 5 % len(OTHERS)])
    return chosen
