"""How a turn ended: its outcome, its notices, and the texts that report it (D25 and D28)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import times
from agentsdir.formats.errors import ProviderError, TurnTimeout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.adapters.protocol import Decision, ToolRequest
    from agentsdir.formats.blocks import Block
    from agentsdir.formats.errors import AgentsdirError
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
"""The connector of users who read the answer in the terminal where they wrote the prompt."""


class Ending(NamedTuple):
    """How a turn ended.

    `error` is the kind of a failure, with its message in `text`; `aborted` is the reason of an
    abort. Both are empty for a completed turn, whose answer is `text`.
    """

    error: str = ""
    text: str = ""
    aborted: str = ""

    @classmethod
    def of_record(cls, event: str, data: dict[str, Any]) -> Ending | None:
        """Return the ending that a record of a turn describes; None for any other record."""
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

    def as_error(self) -> AgentsdirError | None:
        """Return the failure as an error, as for one that another process had; None for none."""
        if self.error:
            return ProviderError(self.text, kind=self.error)
        if self.aborted == "timeout":
            return TurnTimeout("the turn was ended because its time was over")
        if self.aborted:
            return ProviderError(f"the turn was aborted: {self.aborted}", kind="turn-aborted")
        return None

    @property
    def text_for_user(self) -> str:
        """The text for the user behind a connector; empty for a turn that was cancelled."""
        if self.aborted:
            return INTERNAL_ERROR if self.aborted == "crash" else ""
        return _TEXTS.get(self.error, INFERENCE_FAILED) if self.error else self.text

    @property
    def failure_reason(self) -> str:
        """The reason of the failure for notices, without a full stop."""
        if self.aborted:
            return _REASONS.get(self.aborted, _REASONS["interrupt"])
        text = _TEXTS.get(self.error, INFERENCE_FAILED).rstrip(".")
        detail = self.text.strip().rstrip(".")
        return f"{text} ({detail})" if detail else text

    def needs_no_notice(self, state: AgentState, message: dict[str, Any] | None) -> bool:
        """Whether `completion_steps` is empty: only the terminal of the turn shows the end."""
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
        """Return the denial of a request."""
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
    """A message in an agent's inbox that no turn has taken yet."""

    paths: AgentPaths
    message_id: str


class TurnResult(NamedTuple):
    """How a message ended: `outcome` is completed, failed or aborted.

    Attributes:
        recorded: whether the stream events of the turn are stored.
        cost: in US dollars; None if the client does not report it.
        deferred: the children and messages that run after the turn.
        notices: the messages that the end of the turn put into inboxes of other agents.
        error: the exception with which the turn ended.
        denials: the tool calls that were not allowed; None if another process ran the turn.
        agent_id: whose turn it was; `name` and `session_id` are the agent's, `native_id` names the
            client's session after the turn.
        duration_ms: from the start of the turn to its end, both as the log has them.
        tools_used: how often each tool was called, by its name, subagents' calls included.
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
    agent_id: str | None = None
    name: str | None = None
    session_id: str | None = None
    native_id: str | None = None
    duration_ms: int | None = None
    tools_used: dict[str, int] | None = None

    def of_agent(self, state: AgentState) -> TurnResult:
        """Return the result with what the state says of the agent."""
        return self._replace(
            agent_id=state.agent_id,
            name=state.name or None,
            session_id=state.session.id,
            native_id=state.native["id"] or None,
        )

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
            "agentId": self.agent_id,
            "name": self.name,
            "sessionId": self.session_id,
            "nativeId": self.native_id,
            "durationMs": self.duration_ms,
            "toolsUsed": self.tools_used,
        }


def tools_of(logged: Iterable[Block]) -> dict[str, int]:
    """Return how often each tool was called, by its name; a superseded call does not count."""
    calls = (block for block in logged if block.get("type") == "tool_use")
    return dict(Counter(str(b.get("toolName")) for b in calls if not b.get("superseded")))


def milliseconds(start: str, end: str) -> int | None:
    """Return the time between two timestamps, 0 if the clock was set back; None if one is none."""
    try:
        took = times.from_text(end) - times.from_text(start)
    except ValueError:
        return None
    return max(round(took.total_seconds() * 1000), 0)
