"""What a Gemini session file says, by a walk that knows no fold: everything, wherever it stands.

It shares no code with the reader, so that what it finds can be held against what that gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

BODIES = ("originalContent", "newContent")


def values(data: bytes) -> list[Any]:
    """Return every JSON value that a file holds, by lines or as a whole; halves are left out."""
    try:
        return [json.loads(data)]
    except ValueError:
        pass
    values = []
    for line in data.split(b"\n"):
        try:
            values.append(json.loads(line))
        except ValueError:
            continue
    return values


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object at any depth."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from _objects(item)


def strings(value: Any) -> Iterator[str]:
    """Yield every string at any depth that is no key."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def messages(values: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield every version of every message, from rows, lists and documents alike."""
    for value in values:
        rows = [value]
        if isinstance(value, dict):
            rows += value.get("messages") or []
            patch = value.get("$set")
            rows += (patch.get("messages") or []) if isinstance(patch, dict) else []
        for row in rows:
            if isinstance(row, dict) and isinstance(row.get("id"), str) and "type" in row:
                yield row


def said(message: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield what one version of a message says; of each tuple, all strings must be found."""
    for name in ("content", "displayContent"):
        content = message.get(name)
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                yield (part,)
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                subject, mark, rest = part["text"].removeprefix("**").partition("**")
                yield (subject, rest.strip()) if part.get("thought") and mark else (part["text"],)
    for thought in message.get("thoughts") or ():
        yield (thought.get("subject") or "", thought.get("description") or "")
    for one in _objects(message):
        response = one.get("functionResponse")
        if isinstance(response, dict):
            yield tuple(strings(response.get("response")))
        media = one.get("inlineData")
        if isinstance(media, dict):
            yield (str(media.get("data")),)
    for call in message.get("toolCalls") or ():
        if isinstance(call.get("result"), str):
            yield (call["result"],)
        shown = call.get("resultDisplay")
        if isinstance(shown, dict):  # whole files are left out of a diff
            shown = {key: item for key, item in shown.items() if key not in BODIES}
        yield tuple(strings(shown))
        yield tuple(strings(call.get("args")))


def lone(text: str) -> bool:
    """Tell whether half of a surrogate pair stands in a text."""
    return any("\ud800" <= char <= "\udfff" for char in text)


def missing(data: bytes, blocks: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return (message id, text) of all that a file says and no block has.

    A text that grew is part of the longer one. Masks and lone surrogates, which no output of ours
    can hold, are left out.
    """
    found = {text for block in blocks for text in strings(block)}
    everything = "\0".join(found)
    return [
        (message["id"], text)
        for message in messages(values(data))
        for all_of_it in said(message)
        for text in all_of_it
        if not lone(text)
        and not text.startswith("<tool_output_masked>")
        and text not in found
        and text.strip() not in everything
    ]
