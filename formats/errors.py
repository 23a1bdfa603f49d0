"""The exception tree. `agentsdir.cli.exits` alone maps it to exit codes.

See docs/commands.md, "Exit codes".

    AgentsdirError
    ├── UsageError            the command cannot mean anything
    ├── NoSuchAgent           nothing answers to that name
    ├── Busy                  another process holds a lock
    │   └── SlotsHeld         every slot is
    ├── Invalid               bytes on disk are not what they should be
    │   ├── NotATranscript
    │   ├── UnknownVersion
    │   └── UnsafePath
    ├── SessionStateError     the state machine does not allow it
    ├── ProviderError         the provider failed, or is missing
    │   └── TurnTimeout       the turn took longer than its sender allowed
    ├── HookFailed            a hook of the user's gave no answer
    ├── Interruption          a signal or another command ended the work
    ├── NotRecorded           the disk refused; nothing was changed
    └── Uncertain             the disk may or may not hold it

`kind` is a stable kebab-case word for machines; the message is a sentence for people.
"""

from __future__ import annotations


class AgentsdirError(Exception):
    """Anything agentsdir refuses or fails to do, said in one sentence."""

    kind = "failed"

    def __init__(self, message: str, *, hint: str | None = None, kind: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if kind is not None:
            self.kind = kind


class Terminated(SystemExit):
    """A signal ends this process; an exit that an adapter asks for is another thing."""


class UsageError(AgentsdirError):
    """The arguments contradict each other, or name something that cannot be."""

    kind = "usage"


class NoSuchAgent(AgentsdirError):
    """No agent has this id, session id, name or prefix."""

    kind = "no-such-agent"


class Busy(AgentsdirError):
    """Another process holds what this command needs."""

    kind = "locked"


class SlotsHeld(Busy, RuntimeError):
    """As many turns run as there are slots (seed session-model)."""

    kind = "slots-full"


class Invalid(AgentsdirError):
    """Data on disk, or handed in, breaks the format."""

    kind = "invalid"


class NotATranscript(Invalid):
    """No adapter recognises the bytes of `file`."""

    kind = "not-a-transcript"

    def __init__(
        self, message: str, *, file: str = "", hint: str | None = None, kind: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, kind=kind)
        self.file = file


class UnknownVersion(Invalid):
    """The agents directory was written by a format this program does not know."""

    kind = "unknown-version"


class UnsafePath(Invalid):
    """A path that would lead out of the agents directory, or is no regular file."""

    kind = "unsafe-path"


class SessionStateError(AgentsdirError):
    """A transition that the session state machine does not have (seed session-model)."""

    kind = "session-state"


class BudgetSpent(SessionStateError):
    """No more turn may begin: what the agent may spend is spent."""

    kind = "budget"


class ProviderError(AgentsdirError):
    """The provider failed before or during a turn."""

    kind = "provider-failed"


class TurnTimeout(ProviderError):
    """A turn was ended because the time that its sender gave it was over."""

    kind = "turn-timeout"


class HookFailed(AgentsdirError):
    """A hook of the user's could not run, or gave no answer that can be understood."""

    kind = "hook-failed"

    def __init__(
        self, message: str, *, hook: str = "", hint: str | None = None, kind: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, kind=kind)
        self.hook = hook


class Interruption(AgentsdirError):
    """A signal from the terminal, or another command, ended the work."""

    kind = "interrupted"


class NotRecorded(AgentsdirError):
    """The disk refused a write, and everything is as it was before."""

    kind = "not-recorded"


class Uncertain(AgentsdirError):
    """The disk accepted a write but would not confirm it; it must not be retried blindly."""

    kind = "uncertain"
