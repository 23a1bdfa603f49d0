"""An agent's inbox: messages on disk, in order, before anything is done with them (D16, D17).

SPEC.md, "Events"; docs/behaviour.md, "Inbox".
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import ids
from agentsdir.formats.errors import SessionStateError, UsageError
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.events import BROKEN, MESSAGE_FLAGS, waiting_message
from agentsdir.formats.store.log import read_records
from agentsdir.formats.store.state import SessionState, check_transition

if TYPE_CHECKING:
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.agent import AgentWriter
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

PERSON = "cli"
"""The sender of what no agent sends."""
_NAMES = ("reply_to", "retry_of", "permission_mode")
_FRAME = r"(?i)<(?=\s*/?\s*system_message)"
_ESCAPED = r"(?i)&lt;(?=\s*/?\s*system_message)"
_FRAMED = re.compile(
    r'\s*<system_message origin="([^"]*)">(.*?)(?:</system_message>\s*)?\Z', re.DOTALL
)


class Message(NamedTuple):
    """A message for an agent.

    Attributes:
        content: text and image parts.
        sender: the id of the agent that sends it, or `PERSON`.
        sync: the sender wants the answer in its own inbox.
        spawn: it is the first prompt of a spawned agent.
        notice: it reports a failure.
        id: empty for a new one.
        permission_mode: of its turn; one that a log may request.
    """

    content: list[dict[str, Any]]
    sender: str = PERSON
    sync: bool = False
    spawn: bool = False
    notice: bool = False
    id: str = ""
    reply_to: str = ""
    retry_of: str = ""
    permission_mode: str = ""

    def as_data(self, message_id: str) -> dict[str, Any]:
        """Return the data of its `message.enqueued` record."""
        # The task of a subagent is a prompt, although an agent sends it.
        is_prompt = self.sender == PERSON or self.spawn
        data: dict[str, Any] = {
            "message_id": message_id,
            "sender": self.sender,
            "kind": "user" if is_prompt else "system",
            "content": self.content,
        }
        data |= {flag: True for flag in MESSAGE_FLAGS if getattr(self, flag)}
        data |= {name: value for name in _NAMES if (value := getattr(self, name))}
        return data


def text_message(text: str) -> list[dict[str, Any]]:
    """Return a text as the content of a message."""
    return [{"type": "text", "text": text}]


def as_content(value: Any) -> list[dict[str, Any]]:
    """Return a value as the content of a message, a text as its one part.

    Raises `ValueError`, which says what is wrong, for a value that is no content.
    """
    if isinstance(value, str):
        value = text_message(value) if value.strip() else []
    if not isinstance(value, list):
        raise ValueError("neither a text nor a list of text and image parts")
    if not value:
        raise ValueError("nothing is in it")
    for number, part in enumerate(value):
        if (flaw := _part_flaw(part)) is not None:
            raise ValueError(f"part {number}: {flaw}")
    return value


def _part_flaw(part: Any) -> str | None:
    if not isinstance(part, dict):
        return "no object"
    if part.get("type") == "text":
        good = isinstance(part.get("text"), str) and set(part) == {"type", "text"}
        return None if good else "a text part has type and text"
    if part.get("type") != "image":
        return f"type {part.get('type')!r} is neither text nor image"
    source = part.get("source")
    if not isinstance(source, dict) or source.get("type") not in ("base64", "url"):
        return "an image part has a source of type base64 or url"
    if not isinstance(source.get("data"), str):
        return "an image source has data: base64 text, or the url"
    return None


class Enqueued(NamedTuple):
    """The id of a queued message, and the agent's state afterwards."""

    message_id: str
    state: AgentState


def enqueue(services: Services, paths: AgentPaths, message: Message) -> str:
    """Put a message into an agent's inbox, also while a turn runs; return its id.

    A message whose id is in the log already is not added again. Raises `SessionStateError` for a
    terminated session, and `UsageError` for an id that another message has (kind
    ``message-differs``), or that breaks the grammar (kind ``bad-id``).
    """
    return enqueue_and_read(services, paths, message).message_id


def enqueue_and_read(
    services: Services,
    paths: AgentPaths,
    message: Message,
    known: AgentState | None = None,
    *,
    new_id: str = "",
) -> Enqueued:
    """Put a message into an agent's inbox as `enqueue` does; return the agent's state, too.

    Args:
        known: a state to read on from.
        new_id: of a message without an id, where the caller has made one; the log is not searched
            for it.
    """
    if message.id and not ids.is_agent_id(message.id):
        raise UsageError(
            f"{message.id!r} is no message id: 24 to 32 lower-case letters and digits",
            kind="bad-id",
        )
    with write_agent(paths, disk=services.disk, known=known) as writer:
        if message.id and (there := find_message(paths, message.id)) is not None:
            if there.data.get("content") != message.content:
                raise UsageError(
                    f"agent {paths.id} has another message with the id {message.id}",
                    kind="message-differs",
                )
            return Enqueued(message.id, writer.state)
        message = message._replace(id=message.id or new_id)
        return Enqueued(append_message(writer, services, message), writer.state)


def append_message(writer: AgentWriter, services: Services, message: Message) -> str:
    """Append a message whose id the agent does not have (errors of `enqueue`)."""
    if writer.state.session.state is SessionState.TERMINATED:
        check_transition(SessionState.TERMINATED, SessionState.ACTIVE, writer.paths.id)
    message_id = message.id or services.ids.agent()
    writer.append("message.enqueued", message.as_data(message_id), services.now())
    return message_id


def drop_message(services: Services, paths: AgentPaths, message_id: str) -> None:
    """Take a person's message out of an inbox, before a turn has taken it.

    Raises `SessionStateError` for one that does not wait (kind ``not-waiting``), and for one of
    another agent, which may wait for its answer (kind ``not-yours``).
    """
    with write_agent(paths, disk=services.disk) as writer:
        waiting = next((m for m in writer.state.pending if m["messageId"] == message_id), None)
        if waiting is None:
            raise SessionStateError(
                f"no message {message_id!r} waits in the inbox of agent {paths.id}",
                hint="`agentsdir inspect` shows those that wait",
                kind="not-waiting",
            )
        if waiting["sender"] != PERSON:
            raise SessionStateError(
                f"message {message_id} is of agent {waiting['sender']}", kind="not-yours"
            )
        dropped = {"message_id": message_id, "outcome": "aborted"}
        writer.append("message.delivered", dropped, services.now())


def find_message(paths: AgentPaths, message_id: str) -> Record | None:
    """Return the record that put a message into the inbox."""
    for record in read_records(paths.log):
        if record.event == "message.enqueued" and record.data.get("message_id") == message_id:
            return record
    return None


def retry_message(paths: AgentPaths, message_id: str) -> Message:
    """Return a new message with the content of one whose turn failed or was aborted (D16).

    Args:
        message_id: `last` for the last message that ended.

    Raises `UsageError` for an unknown message, and `SessionStateError` (kind ``not-failed``) for
    one that waits, runs, or was answered.
    """
    if message_id == "last":
        message_id = _last_failed(paths)
    said: Message | None = None
    outcome = ""
    for record in read_records(paths.log):
        if record.data.get("message_id") != message_id:
            continue
        if record.event == "message.enqueued":
            with suppress(*BROKEN):  # a malformed message cannot be sent again
                had = waiting_message(record.data, record.ts)
                flags = {flag: had.get(flag, False) for flag in ("sync", "spawn")}
                said = Message(had["content"], had["sender"], retry_of=message_id, **flags)
        elif record.event == "message.delivered":
            outcome = str(record.data.get("outcome"))
    if said is None:
        raise UsageError(f"agent {paths.id} has no message {message_id}", kind="no-such-message")
    if outcome not in ("failed", "aborted"):
        state = "was answered" if outcome else "has not ended"
        raise SessionStateError(f"message {message_id} {state}", kind="not-failed")
    return said


def _last_failed(paths: AgentPaths) -> str:
    """Return the id of the last message that ended. Raises if it was answered."""
    failed = last = ""
    for record in read_records(paths.log):
        if record.event == "message.delivered":
            last = str(record.data.get("message_id"))
            if record.data.get("outcome") != "completed":
                failed = last
    if not failed:
        raise UsageError(f"no message of agent {paths.id} failed", kind="no-such-message")
    if failed != last:
        raise SessionStateError(
            f"the last message of agent {paths.id} was answered",
            hint=f"`--retry {failed}` says the last one again that was not",
            kind="not-failed",
        )
    return last


def as_prompt(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the prompt for the provider from a message in the inbox.

    A text of another agent is framed with the sender's id. The text cannot close the frame or open
    another one.
    """
    content: list[dict[str, Any]] = message["content"]
    if message["kind"] != "system":
        return content
    before = f'<system_message origin="{_attribute(message["sender"])}">'
    parts = [dict(part) for part in content]
    texts = [part for part in parts if isinstance(part.get("text"), str)]
    for part in texts:
        part["text"] = re.sub(_FRAME, "&lt;", part["text"])
    if not texts:
        return [*text_message(f"{before}</system_message>"), *parts]
    texts[0]["text"] = before + texts[0]["text"]
    texts[-1]["text"] += "</system_message>"
    return parts


def unframed(text: str) -> tuple[str, str] | None:
    """Return the sender and the text of a prompt that `as_prompt` framed; None for another.

    The text may be cut at its end.
    """
    found = _FRAMED.match(text)
    if found is None:
        return None
    sender = found[1].replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&")
    return sender, re.sub(_ESCAPED, "<", found[2])


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
