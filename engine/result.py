"""How a turn ended: its outcome, its notices, and the texts that report it (D25 and D28)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from agentsdir.adapters.protocol import Decision, ToolRequest
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState

INTERNAL_ERROR = "Internal error."
NO_PROVIDER = "No inference provider available."
LIMIT_REACHED = "Tool execution limit reached."
INFERENCE_FAILED = "Inference failed."
_TEXTS = {
    "no-provider": NO_PROVIDER,
    "no-client": NO_PROVIDER,
    "max-ticks": LIMIT_REACHED,
}
_REASONS = {
    "crash": "Restored with pending work",
    "interrupt": "Interrupted",
    "parent": "Interrupted",
    "timeout": "Timed out",
    "close": "Closed",
}
TERMINAL = "cli"
"""The connector of those who read the answer where they asked."""


class Ending(NamedTuple):
    """How a turn ended.

    `error` is the kind of its failure, and `text` the message; `aborted` is the reason of an abort.
    Both are empty for a turn that was completed, with `text` as its answer.
    """

    error: str = ""
    text: str = ""
    aborted: str = ""

    @classmethod
    def of_record(cls, event: str, data: dict[str, Any]) -> Ending | None:
        """Return what a record of a turn says of its end; None for one that says nothing of it."""
        if event == "turn.complete":
            return cls(text=str(data.get("response")))
        if event == "turn.error":
            return cls(str(data.get("kind")), str(data.get("message")))
        if event == "turn.aborted":
            return cls(aborted=str(data.get("reason")))
        return None

    @property
    def is_success(self) -> bool:
        """Whether the turn was completed."""
        return not (self.error or self.aborted)

    @property
    def text_for_user(self) -> str:
        """What a person at the other end is told; nothing of a turn that somebody ended."""
        if self.aborted:
            return INTERNAL_ERROR if self.aborted == "crash" else ""
        return _TEXTS.get(self.error, INFERENCE_FAILED) if self.error else self.text

    @property
    def failure_reason(self) -> str:
        """Why it failed, as others are told: without a full stop."""
        if self.aborted:
            return _REASONS.get(self.aborted, _REASONS["interrupt"])
        said = _TEXTS.get(self.error, INFERENCE_FAILED).rstrip(".")
        detail = self.text.strip().rstrip(".")
        return f"{said} ({detail})" if detail else said

    def needs_no_notice(self, state: AgentState, message: dict[str, Any] | None) -> bool:
        """Whether nobody is to be told of it but those who see the turn: as `aftermath` finds."""
        waits = message is not None and (message.get("sync") or message.get("spawn"))
        at_terminal = (state.descriptor.get("type"), state.descriptor.get("connector"))
        return self.is_success and not waits and at_terminal == ("user", TERMINAL)


class Denial(NamedTuple):
    """A tool call that was not allowed, and why (docs/configuration.md, "Tool confirmation")."""

    tool_name: str
    tool_use_id: str
    conversation: str
    reason: str

    @classmethod
    def of(cls, request: ToolRequest, decision: Decision) -> Denial:
        """Return what is said of a request that was denied."""
        reason = decision.reason
        return cls(request.tool_name, request.tool_use_id, request.conversation, reason)

    def as_json(self) -> dict[str, str]:
        """Return one of the `denials` that `send --json` prints."""
        return {
            "toolName": self.tool_name,
            "toolUseId": self.tool_use_id,
            "conversationId": self.conversation,
            "reason": self.reason,
        }


class QueuedMessage(NamedTuple):
    """A message that an ending put into another agent's inbox."""

    paths: AgentPaths
    message_id: str


class TurnResult(NamedTuple):
    """How a message ended: `outcome` is completed, failed or aborted.

    `cost` is in US dollars, where the client said it; `recorded` is whether the stream of its turn
    was kept. `deferred` is what the turn left to be run after it, `told` whom its end was told.
    `error` is what it failed with. `denials` are the tool calls that were not allowed; None where
    another process ran the turn.
    """

    message_id: str | None
    turn_id: str | None
    outcome: str
    response: str
    stop_reason: str | None
    usage: dict[str, Any] | None
    recorded: bool = False
    cost: float | None = None
    deferred: tuple[dict[str, Any], ...] = ()
    notices: tuple[QueuedMessage, ...] = ()
    error: BaseException | None = None
    denials: tuple[Denial, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object that `send --json` prints."""
        denials = [denial.as_json() for denial in self.denials or ()]
        known = {} if self.denials is None else {"denials": denials}
        return {
            "type": "turn",
            "messageId": self.message_id,
            "turnId": self.turn_id,
            "outcome": self.outcome,
            "response": self.response,
            "stopReason": self.stop_reason,
            "usage": self.usage,
            "costUsd": self.cost,
            **known,
        }
