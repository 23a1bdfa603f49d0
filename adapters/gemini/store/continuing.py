"""Whether one copy of a session's file goes on from another, so that it may stand for it.

A log is only appended to: it begins with the other. A document is written anew at each change, so
its bytes say nothing: each message of the other is in it, with what it said.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.gemini.transcripts.detection import DOCUMENT, family_of
from agentsdir.adapters.gemini.transcripts.shapes import dict_of, list_of, text_of
from agentsdir.adapters.store_files import begins_with

if TYPE_CHECKING:
    from agentsdir.formats.reading.source import Source


def goes_on(saved: Source, present: Source) -> bool:
    """Tell whether `present` is `saved`, or what became of it.

    A message of a document goes on from one with its id and type whose text it begins with, and
    whose calls it has; the client may have given it more text, calls and tokens, or have masked the
    result of a call. A document that is damaged, or that lost, moved or changed a message, goes on
    from nothing but itself.

    Raises `AgentsdirError` when either cannot be read.
    """
    if begins_with(saved, present):
        return True
    families = family_of(saved.head()), family_of(present.head())
    if families != (DOCUMENT, DOCUMENT):
        return False
    before, after = _messages(saved), _messages(present)
    if before is None or after is None:
        return False
    # They keep their order. Ids alone would not do: a message may have none, or that of another.
    rest = iter(after)
    return all(any(_includes(now, message) for now in rest) for message in before)


def _messages(source: Source) -> list[dict[str, Any]] | None:
    """Return the messages of a whole document; None where it is damaged."""
    data = source.read()
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:  # half of a surrogate pair is nothing to the one, and a character to the other
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
    messages = dict_of(value).get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return None
    return messages


def _includes(now: dict[str, Any], before: dict[str, Any]) -> bool:
    if any(now.get(name) != before.get(name) for name in ("id", "type")):
        return False
    said, says = before.get("content"), now.get("content")
    if said != says and not (
        isinstance(said, str) and isinstance(says, str) and says.startswith(said)
    ):
        return False
    return _calls(before) <= _calls(now)


def _calls(message: dict[str, Any]) -> set[str]:
    return {text_of(dict_of(call).get("id")) for call in list_of(message.get("toolCalls"))}
