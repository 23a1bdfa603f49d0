"""What the two ends of a session file say: whose it is, and whether anybody talks in it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import orjson

from agentsdir.adapters.gemini.transcripts.detection import DOCUMENT, LOG, family_of, top_keys
from agentsdir.adapters.gemini.transcripts.shapes import (
    content_of,
    part_kind,
    parts_of,
    role_of,
    text_of,
)
from agentsdir.adapters.gemini.transcripts.speakers import is_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.reading.source import Source

END = 64 * 1024
BEGINNING = 4096
_MOST = 1024 * 1024
_CONTEXT = b'"<session_context>'
_TEXT = re.compile(rb'"([^"\\]*)"')
_KIND = re.compile(rb'(?<!\\)"kind"\s*:\s*"(main|subagent)"')
# In a document as clients write it, only the session's own keys stand this far left.
_DOCUMENT_KIND = re.compile(rb'\n  "kind": "(main|subagent)"')
_DOCUMENT_SUMMARY = re.compile(rb'\n  "summary": ("(?:[^"\\]|\\.)*+")')
_WORKSPACE = re.compile(r"\*\*Workspace Directories:\*\*\n\s+- (.+)")
# How the rendered prompt of the first agents began; their files say nothing else about it.
_RENDERED = "Your task is to "
_MESSAGES_KEY = re.compile(r'"messages"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_USER = re.compile(r'"type"\s*:\s*"user"')
# The prompt in a message that is too long for the head.
_CUT_PROMPT = re.compile(r'"(?:content|text)"\s*:\s*("(?:[^"\\]|\\.){1,1000})')


class Ends(NamedTuple):
    """The first and last 64 KiB of a file, the same bytes where it is short; `size` is bytes.

    Where the first 64 KiB hold nothing but what the client told the model, and the file has at most
    1 MiB, they are all of it: else nobody could tell whether anybody talks behind that.
    """

    head: bytes
    tail: bytes
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether the head is all there is."""
        return len(self.head) >= self.size


class Head(NamedTuple):
    """What a file says of itself; texts are empty where it does not.

    `kind` is "main", "subagent" or empty. `rendered` tells whether the first prompt is an agent's,
    `talks` whether anybody but the client says anything.
    """

    family: str | None
    session_id: str
    kind: str
    rendered: bool
    talks: bool

    @property
    def may_be_child(self) -> bool:
        """Whether it is a subagent's, or may be one of a client that did not say so."""
        return self.kind == "subagent" or (not self.kind and self.rendered)


def read_ends(source: Source) -> Ends:
    """Read the two ends of a source. Raises `AgentsdirError` when it cannot be read."""
    with source.open() as stream:
        return ends_of(stream)


def ends_of(stream: BinaryIO) -> Ends:
    """Read the two ends of an open file."""
    head = stream.read(END)
    size = stream.seek(0, 2)
    if size <= END:
        return Ends(head, head, size)
    if size <= _MOST and _CONTEXT in head and not _is_talk(Ends(head, b"", size)):
        stream.seek(0)
        head = stream.read()
        return Ends(head, head, size)
    stream.seek(size - END)
    return Ends(head, stream.read(), size)


def look_at(ends: Ends) -> Head:
    """Return what the ends of a file say. Never raises for what the bytes hold."""
    family = family_of(ends.head)
    if family not in (LOG, DOCUMENT):
        return Head(family, "", "", rendered=False, talks=False)
    said = next((message for message in messages(ends, family) if _speaks(message)), None)
    return Head(
        family,
        id_of(ends.head[:BEGINNING]),
        _kind_of(ends, family),
        rendered=said is not None and prompt_of(said).startswith(_RENDERED),
        # What is longer than both ends is more than what the client puts before a talk.
        talks=said is not None or not ends.is_whole,
    )


def _is_talk(ends: Ends) -> bool:
    return any(_speaks(message) for message in messages(ends, LOG))


def _kind_of(ends: Ends, family: str) -> str:
    """Return the kind: a log says it in its first row, a document behind all messages."""
    if family == LOG:
        kind = _own(ends.head.partition(b"\n")[0], b"kind")
    elif (
        b'\n  "' not in ends.head
        and ends.is_whole
        and isinstance(whole := _decode(ends.head), dict)
    ):
        kind = text_of(whole.get("kind"))
    else:
        found = (_DOCUMENT_KIND if b'\n  "' in ends.head else _KIND).findall(ends.tail)[-1:]
        kind = found[0].decode() if found else ""
    return kind if kind in ("main", "subagent") else ""


def _own(text: bytes, name: bytes) -> str:
    """Return a text that the object at the beginning of `text` has itself; empty for none."""
    if name not in text:
        return ""
    for key, at in top_keys(text.removeprefix(b"\xef\xbb\xbf").lstrip()):
        if key == b'"' + name + b'"':
            shift = len(text) - len(text.removeprefix(b"\xef\xbb\xbf").lstrip())
            found = _TEXT.match(text, at + shift)
            return found[1].decode(errors="replace") if found else ""
    return ""


def id_of(beginning: bytes) -> str:
    """Return the session's id that a file's first `BEGINNING` bytes say; empty where they do not.

    It stands in the first row, and of a document in the first lines.
    """
    line = beginning.partition(b"\n")[0]
    return _own(beginning if line.strip() == b"{" else line, b"sessionId")


def messages(ends: Ends, family: str) -> Iterator[dict[str, Any]]:
    """Yield the messages that stand whole in the head, and of a log in the tail, in order."""
    if family == DOCUMENT:
        yield from _elements(ends.head)
        return
    for row in rows(ends):
        if isinstance(row.get("id"), str):
            yield row
            continue
        change = row.get("$set")
        listed = (change if isinstance(change, dict) else row).get("messages")
        for message in listed if isinstance(listed, list) else ():
            if isinstance(message, dict):
                yield message


def rows(ends: Ends, word: bytes = b"") -> Iterator[dict[str, Any]]:
    """Yield the rows that stand whole in the ends of a log, and hold a word, in order."""
    for data in (ends.head,) if ends.is_whole else (ends.head, ends.tail):
        if word in data:
            for line in data.split(b"\n"):
                if word in line and isinstance(row := _decode(line), dict):
                    yield row


def started(ends: Ends) -> str:
    """Return when a session began, as its header says; empty where it does not."""
    return _own(ends.head[:BEGINNING], b"startTime")


def workspace_of(ends: Ends, family: str) -> str:
    """Return the first folder that the client told the model it works in; empty for none.

    Only newer clients tell, and a subagent's header.
    """
    if family == LOG:
        for row in rows(ends, b'"directories"'):
            named = row.get("directories")
            if isinstance(named, list) and named:
                return text_of(named[0])
    for message in messages(ends, family):
        for part in parts_of(content_of(message)):
            if part_kind(part) == "text" and (found := _WORKSPACE.search(part["text"])):
                return found[1]
    return ""


def summary_of(ends: Ends, family: str) -> str:
    """Return the title that the client gave a session last; empty for none."""
    found = ""
    if family == LOG:
        for row in rows(ends, b'"summary"'):
            change = row.get("$set") if "$set" in row else row
            if isinstance(change, dict) and "id" not in change and "summary" in change:
                found = text_of(change["summary"])
        return found
    for data in (ends.head, ends.tail):
        for match in _DOCUMENT_SUMMARY.finditer(data):
            found = text_of(_decode(match[1]))
    if not found and ends.is_whole and isinstance(whole := _decode(ends.head), dict):
        found = text_of(whole.get("summary"))
    return found


def prompt_of(message: dict[str, Any]) -> str:
    """Return what a person typed in a message; empty where nobody did."""
    if role_of(message) != "user":
        return ""
    shown = message.get("displayContent")
    for part in parts_of(content_of(message) if shown is None else shown):
        if part_kind(part) == "text" and not is_client(part["text"]) and part["text"].strip():
            return str(part["text"])
    return ""


def cut_prompt(ends: Ends, family: str) -> str:
    """Return the beginning of a prompt that is longer than the head; empty for none."""
    if ends.is_whole:
        return ""
    text = ends.head.decode(errors="replace")
    if family == LOG:
        text = text[text.rfind("\n") + 1 :]
    else:
        *_, text = _elements_and_rest(text)
    if not _USER.search(text):
        return ""
    for match in _CUT_PROMPT.finditer(text):
        for end in range(len(match[1]), max(len(match[1]) - 12, 0), -1):  # not within an escape
            said = text_of(_decode((match[1][:end] + '"').encode(errors="replace")))
            if said and not is_client(said):
                return said
    return ""


def _speaks(message: dict[str, Any]) -> bool:
    if role_of(message) == "user":
        kinds = [part_kind(part) for part in parts_of(content_of(message))]
        return bool(prompt_of(message)) or ("media" in kinds and "response" not in kinds)
    if role_of(message) != "model":
        return False
    if message.get("toolCalls") or message.get("thoughts"):
        return True
    parts = parts_of(content_of(message))
    return any(part_kind(part) != "text" or part["text"] for part in parts)


def _elements(head: bytes) -> Iterator[dict[str, Any]]:
    for value in _elements_and_rest(head.decode(errors="replace")):
        if isinstance(value, dict):
            yield value


def _elements_and_rest(text: str) -> Iterator[Any]:
    """Yield the messages of a document that stand whole in its head, then the text behind them."""
    found = _MESSAGES_KEY.search(text)
    decoder = json.JSONDecoder()
    at = found.end() if found else len(text)
    while at < len(text):
        gap = _BETWEEN.match(text, at)
        assert gap is not None
        try:
            value, at = decoder.raw_decode(text, gap.end())
        except (ValueError, RecursionError):  # damaged, cut, or the end of the list
            break
        if isinstance(value, dict):
            yield value
    yield text[at:]


def _decode(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        try:  # half of a surrogate pair is nothing to the one, and a character to the other
            return json.loads(line)
        except (ValueError, RecursionError):  # damaged, or cut by the end of what was read
            return None
