"""Exit codes, and the one place that maps errors to them (docs/commands.md, "Exit codes")."""

from __future__ import annotations

from enum import IntEnum

from agentsdir.formats import errors


class Exit(IntEnum):
    """What a shell script can rely on."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PARTIAL = 3
    NO_SUCH_AGENT = 10
    LOCKED = 11
    INVALID = 12
    STATE = 13
    PROVIDER = 14
    NOT_RECORDED = 15
    TIMED_OUT = 124
    HUNG_UP = 129
    INTERRUPTED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143


CODES: dict[type[errors.AgentsdirError], Exit] = {
    errors.AgentsdirError: Exit.FAILED,
    errors.UsageError: Exit.USAGE,
    errors.NoSuchAgent: Exit.NO_SUCH_AGENT,
    errors.Busy: Exit.LOCKED,
    errors.Invalid: Exit.INVALID,
    errors.SessionStateError: Exit.STATE,
    errors.ProviderError: Exit.PROVIDER,
    errors.TurnTimeout: Exit.TIMED_OUT,
    errors.Interruption: Exit.INTERRUPTED,
    errors.NotRecorded: Exit.NOT_RECORDED,
    errors.Uncertain: Exit.NOT_RECORDED,
}


def code_of(error: errors.AgentsdirError) -> Exit:
    """Return the exit code of an error: its class's, or the nearest base's."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
