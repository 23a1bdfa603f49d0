"""Rows that write the history anew, put back to the messages that they restate.

A declined tool, ``/chat resume`` and ``/restore`` append each message that is kept under a new id,
with turns of one role joined. Nothing in such a row names the message: its parts tell it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from agentsdir.adapters.gemini.transcripts.shapes import (
    bare_call_id,
    content_of,
    dict_of,
    part_kind,
    parts_of,
    plain_text,
    role_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentsdir.adapters.gemini.transcripts.index import Index
    from agentsdir.adapters.gemini.transcripts.messages import Message
    from agentsdir.adapters.gemini.transcripts.shapes import Part

# The role of a message, and the hash of its texts as `Message.texts` has it.
Sign: TypeAlias = "tuple[str, int]"


def said_in(parts: list[Part]) -> list[Any]:
    """Return what the texts and the media of a user turn tell it apart by, in order."""
    answers = any(part_kind(part) == "response" for part in parts)
    said: list[Any] = []
    for part in parts:
        kind = part_kind(part)
        if kind in ("text", "thought"):
            said.append(part["text"])
        elif kind == "media" and not answers:  # what follows a result is a part of it
            media = dict_of(part.get("inlineData") or part.get("fileData"))
            said.append(hash(text_of(media.get("data")) or text_of(media.get("fileUri"))))
    return said


def sign_of(value: Any) -> Sign | None:
    """Return the sign of a message; None for one without text."""
    if not isinstance(value, dict):
        return None
    role, content = role_of(value), content_of(value)
    if role == "user":
        said = said_in(parts_of(content))
        return (role, hash(tuple(said))) if said else None
    text = plain_text(content).strip()
    return (role, hash(text)) if text else None


def by_text(messages: Iterable[Message]) -> dict[Sign, list[Message]]:
    """Return messages by what they say, the last first: `pop` takes the earliest."""
    found: dict[Sign, list[Message]] = {}
    for message in messages:
        for sign in message.texts:
            found.setdefault((message.role, sign), []).append(message)
    for same in found.values():
        same.reverse()
    return found


def splits(said: list[Any], is_there: Callable[[Sign], bool]) -> list[Sign] | None:
    """Split what a user turn says into turns that are there, the longest first; None if it fails.

    Args:
        said: what the turn says (`said_in`).
        is_there: tells whether there is a turn with this sign.
    """
    signs: list[Sign] = []
    at = 0
    while at < len(said):
        for end in range(len(said), at, -1):
            sign = "user", hash(tuple(said[at:end]))
            if is_there(sign):
                signs.append(sign)
                at = end
                break
        else:
            return None
    return signs


def only_restates(value: dict[str, Any], signs: set[Sign]) -> bool:
    """Tell whether all that a message says has been said in messages with these signs."""
    if role_of(value) != "user":
        return sign_of(value) in signs
    return splits(said_in(parts_of(content_of(value))), signs.__contains__) is not None


class Restated:
    """The messages that a history written anew may restate, each once.

    Args:
        index: has the calls.
        messages: those before it, what was live first.
    """

    def __init__(self, index: Index, messages: list[Message]) -> None:
        self._calls = index.calls
        self._free = by_text(messages)
        # The turn of results behind each message that calls.
        self._results: dict[str, Message] = {}
        before = None
        for message in messages:
            if message.role == "model":
                before = message
            elif message.role == "user" and before is not None:
                if before.calls:
                    self._results.setdefault(before.id, message)
                before = None

    def by(self, value: dict[str, Any]) -> list[str]:
        """Return the ids of the messages that a row restates, in order; none for a new one."""
        if role_of(value) != "user":
            sign = sign_of(value)
            return [self._free[sign].pop().id] if sign is not None and self._has(sign) else []
        parts = parts_of(content_of(value))
        signs = splits(said_in(parts), self._has)
        if signs is None:
            return []
        found = self._answers(parts)
        for sign in signs:
            if not self._has(sign):  # one text twice, where it stood once
                return []
            found.append(self._free[sign].pop().id)
        return list(dict.fromkeys(found))

    def _has(self, sign: Sign) -> bool:
        return bool(self._free.get(sign))

    def _answers(self, parts: list[Part]) -> list[str]:
        """Return the turn that gave the results among these parts, if it is known."""
        for part in parts:
            if part_kind(part) == "response":
                response = part["functionResponse"]
                name, call_id = text_of(response.get("name")), text_of(response.get("id"))
                owner = self._calls.get(bare_call_id(call_id, name))
                turn = None if owner is None else self._results.get(owner[0].id)
                if turn is not None:
                    return [turn.id]
        return []
