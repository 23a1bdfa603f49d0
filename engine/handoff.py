"""Fallback providers, and the conversation that is handed off to a session that missed it (D24).

docs/behaviour.md, "Fallback".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import RECORDABLE_MODES
from agentsdir.engine.limits import MODEL_BLOCKS
from agentsdir.engine.providers import fallback_change, primary_native
from agentsdir.formats import ids, jsontext
from agentsdir.formats.blocks import BLOCKS, MAIN, block_key
from agentsdir.formats.errors import ProviderError, UsageError
from agentsdir.formats.store.events import TURN_ENDS
from agentsdir.formats.store.log import read_records

if TYPE_CHECKING:
    from agentsdir.adapters.protocol import Architecture, Content, Provider
    from agentsdir.engine.services import Services
    from agentsdir.engine.turn import TurnContext
    from agentsdir.formats.blocks import Block
    from agentsdir.formats.errors import AgentsdirError
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

# Errors that another provider would not avoid: the prompt, the log or the root is refused, or the
# turn has its outcome already.
_FINAL = frozenset(
    {
        "aborted",
        "bad-options",
        "max-ticks",
        "permission-mode",
        "process-left",
        "refused",
        "untrusted-root",
        "use-reset",
    }
)
MAX_FALLBACKS = 10
"""The most fallbacks that a turn tries, whatever the list has."""
# The provider is not installed, so nothing was tried.
_ABSENT = frozenset({"no-client", "no-provider"})

LARGEST_HANDOFF = 256 * 1024
"""The most bytes of conversation before a prompt; the oldest entries are left out."""
_MAX_TEXT = 16 * 1024
"""The most characters of one entry."""
_BEGINNING = (
    "What was said in this conversation where you could not hear it, one JSON object a line"
)
_END = "That was said before. The message to answer now:"


def may_fall_back(error: BaseException) -> bool:
    """Return whether a fallback may run after a provider failed with `error`."""
    return isinstance(error, ProviderError) and error.kind not in _FINAL


def fallback_providers(services: Services, state: AgentState) -> list[str]:
    """Return the fallbacks of an agent in order: its own list, else that of the root."""
    names = state.fallbacks or services.settings.fallbacks
    others = [name for name in dict.fromkeys(names) if name != state.session.provider_name]
    return others[:MAX_FALLBACKS]


def chain_error(errors: list[AgentsdirError], name: str) -> AgentsdirError:
    """Return the error of a turn whose providers all failed: that of the last one that was tried.

    Args:
        errors: one for each provider; all but the last are logged already.
        name: of the last provider.
    """
    tried = [error for error in errors if error.kind not in _ABSENT]
    found, last = (tried or errors)[-1], errors[-1]
    if found is last:
        return found
    message = f"{found.message}; {name} could not stand in: {last.message}"
    return ProviderError(message, hint=found.hint, kind=found.kind)


def log_fallback(
    turn: TurnContext, before: str, name: str, error: AgentsdirError, number: int
) -> None:
    """Log that `name` continues the turn of `before`, and its native session.

    Args:
        error: of `before`.
        number: of the attempt that begins, from 2.
    """
    reason = jsontext.clean(f"{error.kind}: {error.message}", set())
    turn.append(
        "provider.fallback", {"from": before, "to": name, "reason": reason, "attempt": number}
    )
    try:
        architecture = registry.get(name).architecture
    except UsageError:
        return  # the attempt says so itself
    native = _native_for(turn, architecture)
    if native != turn.state.native:
        with turn.writer() as writer:
            writer.append("native.changed", fallback_change(native), turn.services.now())


def _native_for(turn: TurnContext, architecture: str) -> dict[str, Any]:
    """Return the native session that goes on in an architecture, or begins there."""
    if turn.state.native["architecture"] == architecture:
        return turn.state.native
    own = primary_native(turn.paths, turn.state)
    if own["architecture"] == architecture:
        return own
    return {**own, "architecture": architecture, "id": ids.dashed(turn.services.ids.session())}


def as_fallback_state(
    state: AgentState, architecture: Architecture, provider: Provider
) -> AgentState:
    """Return an agent's state for `session_spec` of a fallback.

    The agent's model is of its own architecture; another architecture uses its default model.
    """
    same = state.session.provider_name == architecture.name
    model = state.session.model if same else provider.default_model
    session = replace(state.session, provider_name=architecture.name, model=model)
    return replace(state, session=session)


def fallback_mode(mode: str) -> str:
    """Return the permission mode of a fallback for a turn with the mode `mode`.

    The same word may grant more in another client, so only recordable modes are kept.
    """
    return mode if mode in ("", *RECORDABLE_MODES) else "default"


# The handoff. The session of a fallback lacks the turns before it, and the primary session lacks
# the turns of fallbacks. Both get them as text before the next prompt: one JSON object a line, so
# that no text can pass for another entry.


def with_handoff(turn: TurnContext, content: Content) -> Content:
    """Return a prompt, preceded by the conversation that the native session has missed."""
    text = handoff_text(turn.paths, turn.state.native["id"], turn.id)
    if not text:
        return content
    if isinstance(content, str):
        return f"{text}\n\n{content}"
    return [{"type": "text", "text": text}, *content]


def handoff_text(paths: AgentPaths, native_id: str, turn_id: str = "") -> str:
    """Return the conversation since the last reset that a native session has missed, as text.

    Args:
        turn_id: the turn that is open, which is left out.
    """
    builder = _HandoffBuilder(native_id)
    for record in read_records(paths.log):
        if record.event == "turn.start" and record.data.get("turn_id") == turn_id:
            break
        builder.take(record)
    if not builder.lines:
        return ""
    left_out = f", {builder.left_out} older ones left out" if builder.left_out else ""
    said = "\n".join(line.decode() for line in builder.lines.values())
    return f"{_BEGINNING}{left_out}:\n\n{said}\n\n{_END}"


class _HandoffBuilder:
    """Folds a log into the conversation that one native session has missed.

    A turn with an answer in that session clears it: the session then has all of it.
    """

    def __init__(self, native_id: str) -> None:
        self._wanted = native_id
        self._native: Any = None
        self._prompts: dict[str, dict[str, Any]] = {}
        self._turn: Any = None
        self._keys: set[tuple[str, str]] = set()
        self._answered = False
        self._size = 0
        self.lines: dict[tuple[str, str], bytes] = {}
        self.left_out = 0

    def take(self, record: Record) -> None:
        """Take the next record of the log."""
        event, data = record.event, record.data
        if isinstance(data.get("native"), dict):
            self._native = data["native"].get("id")
        if event == "history.reset":
            self._clear()
        elif event == "message.enqueued":
            self._prompts[str(data.get("message_id"))] = data
        elif event == "turn.start":
            self._start(data)
        elif event in TURN_ENDS and data.get("turn_id") == self._turn:
            self._end(completed=event == "turn.complete")
        elif event == "block" and isinstance(block := data.get("block"), dict):
            self._add_block(data.get("turn_id"), block)

    def _start(self, data: dict[str, Any]) -> None:
        self._turn, self._keys, self._answered = data.get("turn_id"), set(), False
        for message_id in data.get("message_ids", ()):
            message = self._prompts.pop(str(message_id), None)
            if message is not None:
                key = ("message", str(message_id))
                self._keys.add(key)
                self._add(key, _prompt(message))

    def _end(self, *, completed: bool) -> None:
        if not completed:
            key = ("end", str(self._turn))
            self._keys.add(key)
            self._add(key, {"role": "note", "text": "the turn ended before it was done"})
        if self._native == self._wanted:
            if completed or self._answered:
                self._clear()
            for key in self._keys:
                self._drop(key)
        self._turn = None

    def _add_block(self, turn: Any, block: Block) -> None:
        if block.get("conversationId") != MAIN:
            return
        key = block_key(block)
        entry = None if block.get("superseded") else _entry(block)
        if turn is not None and turn == self._turn:
            # The block of the prompt may contain an earlier handoff; the message has none.
            entry = None if block.get("type") == "user_message" else entry
            self._answered = self._answered or (entry is not None and block["type"] in MODEL_BLOCKS)
            self._keys.add(key)
        elif key not in self.lines and self._native == self._wanted:
            return  # written by the client itself, in this session
        if entry is None:
            self._drop(key)
        else:
            self._add(key, entry)

    def _add(self, key: tuple[str, str], entry: dict[str, Any]) -> None:
        # A client reads `@path` in a prompt as a file name, so `@` is escaped.
        line = _encoded(entry).replace(b"@", rb"\u0040")
        self._size += len(line) - len(self.lines.get(key, b""))
        self.lines[key] = line
        while self._size > LARGEST_HANDOFF:
            self._drop(next(iter(self.lines)))
            self.left_out += 1

    def _drop(self, key: tuple[str, str]) -> None:
        self._size -= len(self.lines.pop(key, b""))

    def _clear(self) -> None:
        self.lines.clear()
        self._size = self.left_out = 0


def _prompt(message: dict[str, Any]) -> dict[str, Any]:
    text = _text(message.get("content"))
    if message.get("kind") == "system":
        return {"role": "system_message", "origin": message.get("sender"), "text": text}
    return {"role": "user", "text": text}


def _entry(block: Block) -> dict[str, Any] | None:
    """Return what a session is handed of a block; None for a type that has no role in `BLOCKS`."""
    row = BLOCKS.get(str(block.get("type")))
    if row is None or row.role is None:
        return None
    if row.text:
        entry = {"role": row.role, "text": _text(block.get(row.text))}
        return {**entry, "failed": True} if block.get("isError") else entry
    given = block.get("input")
    if len(encoded := _encoded(given)) > _MAX_TEXT:
        given = _text(encoded.decode())
    return {"role": row.role, "name": block.get("toolName"), "input": given}


def _text(content: Any) -> str:
    """Return content as text of limited length, with a marker for each part that is not text."""
    if isinstance(content, list):
        parts = [part if isinstance(part, dict) else {} for part in content]
        content = "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in parts)
    elif content is None:
        content = ""
    elif not isinstance(content, str):
        content = _encoded(content).decode()
    over = len(content) - _MAX_TEXT
    return f"{content[:_MAX_TEXT]} [{over} characters left out]" if over > 0 else content


def _encoded(value: Any) -> bytes:
    """Return a value as JSON. A value of a foreign log may not round-trip."""
    return jsontext.encode(jsontext.clean(value, set()))
