"""What the prompt knows of an agent: its facts, the turn that runs, the prompts that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.cli.output import one_line

if TYPE_CHECKING:
    from agentsdir.cli.chat.turns import ShownTurn


class QueuedPrompt(NamedTuple):
    """A prompt that no turn has taken yet. `message_id` is empty until the inbox has it."""

    text: str
    message_id: str = ""


class ChatAgent:
    """One agent of the conversation.

    Attributes:
        running: the turn that this prompt runs; `last` is that one or the one before.
        document: what `inspect` printed last.
        waiting: the prompts in its inbox that were typed here, in order.
        holds: whether they wait for a key: the turn before them was interrupted, or has failed, or
            an earlier conversation left them.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.waiting: list[QueuedPrompt] = []
        self.holds = False
        self.running: ShownTurn | None = None
        self.last: ShownTurn | None = None

    @property
    def id(self) -> str:
        """The agent's id."""
        return str(self.document["agentId"])

    @property
    def label(self) -> str:
        """The name for a person: the agent's, or the beginning of its id."""
        name = self.document.get("name")
        return one_line(str(name)) if name else self.id[:8]


def status_line(agent: ChatAgent | None, slots: str) -> str:
    """Return the row of the state of an agent: what is known of it, the important first.

    Args:
        slots: what is to be said of slots, if anything.
    """
    if agent is None:
        return "no agent yet · the first prompt makes one · /help"
    said = agent.document
    is_working = agent.running is not None or said.get("status") == "running"
    provider, model = str(said.get("provider") or ""), str(said.get("model") or "")
    parts = [
        agent.label,
        "working" if is_working else str(said.get("state")),
        provider if not model or model.startswith(provider) else f"{provider} {model}",
        str(said.get("permissionMode") or ""),
        f"{short_number((said.get('usage') or {}).get('totalTokens') or 0)} tokens",
        f"${said['costUsd']:.2f}" if said.get("costUsd") is not None else "",
        _context(agent.last),
        slots,
    ]
    return " · ".join(one_line(part) for part in parts if part)


def _context(turn: ShownTurn | None) -> str:
    if turn is None or not (turn.context.used and turn.context.window):
        return ""
    return f"context {100 * turn.context.used // turn.context.window}%"


def short_number(number: int) -> str:
    """Return a number in at most five characters, such as ``12.3k``."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit:
            return f"{number / limit:.1f}".removesuffix(".0") + unit
    return str(number)


def age(seconds: float) -> str:
    """Return how long ago something was, in words."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"
