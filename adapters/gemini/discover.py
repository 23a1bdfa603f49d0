"""Which files are Gemini's, what their heads and tails say, and which make up a session."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from datetime import timedelta
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import orjson

from agentsdir.adapters.gemini.checkpoints import LISTS, is_prompt, prompts_in, session_of, turn_of
from agentsdir.adapters.gemini.documents import CLOSE, OPEN, TOKEN, ListDocument
from agentsdir.adapters.gemini.projects import CHATS, OUTPUTS
from agentsdir.adapters.gemini.shapes import (
    MODEL_TYPES,
    content_id,
    content_of,
    dict_of,
    list_of,
    moment_of,
    part_kind,
    parts_of,
    plain_text,
    prompt_drafts,
    role_of,
    text_of,
)
from agentsdir.adapters.gemini.speakers import is_client, names_command
from agentsdir.adapters.protocol import SessionFiles, Transcript
from agentsdir.formats.findings import Finding
from agentsdir.formats.rows import Tally
from agentsdir.formats.source import HEAD
from agentsdir.schemas.rfc3339 import is_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
    from datetime import datetime

    from agentsdir.formats.source import Source


# Detection: the family of a file, by its first bytes.

# The families of files.
LOG, DOCUMENT, STREAM, REPORT = "log", "document", "stream", "report"
PROMPTS, CHECKPOINT, QWEN = "prompts", "checkpoint", "qwen"

_LOOKED_AT = 64
_COLON = re.compile(rb"\s*:\s*")
_TYPES = ("user", "gemini", "info", "warning", "error")
_SESSION = re.compile(rb'(?<!\\)"sessionId"\s*:')
_PROJECT = re.compile(rb'(?<!\\)"projectHash"\s*:')
# How a report begins that is longer than the head, or cut.
_REPORT = re.compile(
    rb'\{\s*"session_id"\s*:\s*"[^"]*"\s*,\s*"(?:response"\s*:\s*"|stats"\s*:\s*\{\s*"models")'
)
_OPERATION = re.compile(rb'\{\s*"\$(?:set"\s*:\s*\{\s*"messages"\s*:\s*\[|rewindTo"\s*:\s*")')
# A list, bare or the first value of an object under a checkpoint's name for it.
_LIST = re.compile(rb'(?:\[|\{\s*"(?:history|clientHistory)"\s*:\s*\[)\s*\{')
_LONG_TURN = re.compile(rb'\{\s*"role"\s*:\s*"(?:user|model)"\s*,\s*"parts"\s*:\s*\[')
# A header that breaks off, as one line; what its second key is, as far as it goes.
_CUT_HEADER = re.compile(rb'\{"sessionId":(?:"(?:[^"\n]*|[^"\n]*",?("[^\n\[]*)?))?')
# Lines of a recording that no other program is known to print; messages and errors are common.
_STREAM_FIELDS = {
    "init": ("session_id", "model"),
    "message": ("role", "content", "delta"),
    "tool_use": ("tool_name", "tool_id", "parameters"),
    "tool_result": ("tool_id", "status"),
    "result": ("status", "stats"),
}
# What only a model's message has.
_ANSWERS = ("thoughts", "tokens", "toolCalls", "model")


# Keys at the top of Qwen Code's rows that no other client has.
_QWEN = frozenset({"systemPayload", "usageMetadata", "toolCallResult"})


def family_of(head: bytes) -> str | None:
    """Return the family of a file that begins with `head`; None for a file of another program."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first = text[:4096]
    if _is_report(text):
        return REPORT
    if found := _LIST.match(first):
        has_sent = any(key == b'"clientHistory"' for key, _ in top_keys(text))
        return _family_of_list(text[found.end() - 1 :], has_sent=has_sent)
    hints: set[str] = set()
    for line in text.split(b"\n", _LOOKED_AT)[:_LOOKED_AT]:
        if not line.startswith(b"{") or line.rstrip() == b"{":
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        family = _family_of_row(row) if isinstance(row, dict) else None
        if family is not None:
            return _one_line_document(row, text) or family
        if isinstance(row, dict):
            hints |= _hints_of(row)
    if len(hints) > 1:
        return LOG
    # The first line may be longer than the head, or one of many of a document.
    if _has_header(text):
        newline = text.find(b"\n")
        line_is_whole = newline >= 0 and _is_json(text[:newline])
        return LOG if line_is_whole or _is_cut_header(text) else DOCUMENT
    is_cut = _OPERATION.match(first) and not _is_json(text.partition(b"\n")[0])
    return LOG if is_cut or _is_cut_header(text) else None


def _has_header(text: bytes) -> bool:
    """Tell whether the text begins with an object that has the ids of a session and a project."""
    first = text[:4096]
    if not (first.startswith(b"{") and _SESSION.search(first) and _PROJECT.search(first)):
        return False
    keys = {match[0] for match in top_keys(first)}
    return {b'"sessionId"', b'"projectHash"'} <= keys


def top_keys(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the keys of the object that `text` begins with, and where each one's value begins.

    Keys of inner objects, and of text in strings, are left out. `text` may be cut anywhere.
    """
    depth, is_key = 0, False
    for match in TOKEN.finditer(text):
        token = match[0]
        if token in OPEN:
            depth += 1
            is_key = depth == 1
        elif token in CLOSE:
            depth -= 1
            is_key = depth == 1
            if depth <= 0:
                return
        elif depth == 1 and is_key and (colon := _COLON.match(text, match.end())):
            yield token, colon.end()
            is_key = False
        else:
            is_key = depth == 1


def _is_report(text: bytes) -> bool:
    """Tell whether this is the one object that ``--output-format json`` prints.

    Clients up to 0.11 have no session in it, so its statistics must be those of the client.
    """
    if not text.startswith(b"{"):
        return False
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _REPORT.match(text[:4096]) is not None
    stats, error = value.get("stats"), value.get("error")
    if isinstance(stats, dict) and isinstance(stats.get("models"), dict):
        return isinstance(stats.get("tools"), dict) and ("response" in value or error is not None)
    named = isinstance(value.get("session_id"), str) and isinstance(error, dict)
    return named and isinstance(error.get("type"), str) and isinstance(error.get("message"), str)


def _hints_of(row: dict[str, Any]) -> set[str]:
    """Return signs of a log without its header; one such row alone is a common shape."""
    change = row.get("$set")
    if isinstance(change, dict):
        touched = change.get("lastUpdated")
        return {"touch"} if isinstance(touched, str) and is_rfc3339(touched) else set()
    content = row.get("content")
    if row.get("type") == "user" and isinstance(content, list) and _is_message(row):
        known = any(part_kind(part) != "other" for part in parts_of(content))
        return {"prompt"} if known else set()
    return set()


def _is_cut_header(text: bytes) -> bool:
    """Tell whether this is the beginning of a log's first line, as a full disk leaves it."""
    found = _CUT_HEADER.fullmatch(text)
    return found is not None and b'"projectHash":'.startswith((found[1] or b'"')[:14])


def _family_of_list(text: bytes, *, has_sent: bool) -> str | None:
    """Return the family of a file whose list begins with the object that `text` begins with."""
    try:
        entry, _ = json.JSONDecoder().raw_decode(text.decode(errors="replace"))
    except ValueError:  # longer than the head
        return CHECKPOINT if _LONG_TURN.match(text) else None
    if isinstance(entry.get("parts"), list) and entry.get("role") in ("user", "model"):
        return CHECKPOINT
    if is_prompt(entry):
        return PROMPTS if entry.get("type", "user") == "user" else None
    # Items that the client showed are only beside what it sent the model.
    shown = isinstance(entry.get("text"), str) and entry.get("type") == "user"
    return CHECKPOINT if shown and type(entry.get("id")) is int and has_sent else None


def _one_line_document(row: dict[str, Any], text: bytes) -> str | None:
    """Return `DOCUMENT` for a session in one line; with lines below it, it is a row of a log."""
    if isinstance(row.get("messages"), list) and "sessionId" in row:
        newline = text.find(b"\n")
        if newline < 0 or not text[newline:].strip():
            return DOCUMENT
    return None


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def is_qwen(row: dict[str, Any]) -> bool:
    """Tell whether a row is Qwen Code's: a row like Claude's, around a turn like Gemini's."""
    if not isinstance(row.get("uuid"), str) or not isinstance(row.get("sessionId"), str):
        return False
    call = row.get("toolCall")  # in what its /export writes
    if row.get("type") == "tool_call" and isinstance(call, dict) and "toolCallId" in call:
        return True
    message = row.get("message")
    return not _QWEN.isdisjoint(row) or (isinstance(message, dict) and "parts" in message)


def _family_of_row(row: dict[str, Any]) -> str | None:
    if isinstance(row.get("sessionId"), str) and isinstance(row.get("projectHash"), str):
        return LOG
    if is_qwen(row):
        return QWEN
    if isinstance(row.get("$rewindTo"), str):
        return LOG
    change = row.get("$set")
    listed = change.get("messages") if isinstance(change, dict) else None
    if isinstance(listed, list) and any(
        isinstance(one, dict) and _has_message_fields(one) for one in listed
    ):
        return LOG
    kind, timestamp = row.get("type"), row.get("timestamp")
    if not isinstance(kind, str) or not isinstance(timestamp, str):
        return None
    if not is_rfc3339(timestamp):
        return None
    if "id" not in row:
        wanted = _STREAM_FIELDS.get(kind)
        return STREAM if wanted and all(name in row for name in wanted) else None
    known = kind == "gemini" or any(name in row for name in _ANSWERS)
    return LOG if known and kind in MODEL_TYPES and _is_message(row) else None


def _is_message(row: dict[str, Any]) -> bool:
    """Tell whether a row has the shape of a message in a log."""
    timestamp = row.get("timestamp")
    # Claude's rows have a uuid, and our own blocks name their conversation.
    foreign = "uuid" in row or "message" in row or "conversationId" in row or "sessionId" in row
    return (
        not foreign
        and _has_message_fields(row)
        and isinstance(timestamp, str)
        and is_rfc3339(timestamp)
    )


def _has_message_fields(row: dict[str, Any]) -> bool:
    known = row.get("type") in _TYPES or row.get("type") in MODEL_TYPES
    return known and isinstance(row.get("id"), str) and "content" in row


# Peeking: what the two ends of a session file say, and whether the file has any conversation.

END = 64 * 1024
BEGINNING = 4096
_MOST = 1024 * 1024
_CONTEXT = b'"<session_context>'
_TEXT = re.compile(rb'"([^"\\]*)"')
_KIND = re.compile(rb'(?<!\\)"kind"\s*:\s*"(main|subagent)"')
# In a document as clients write it, only the session's own keys have this indent.
_DOCUMENT_KIND = re.compile(rb'\n  "kind": "(main|subagent)"')
_DOCUMENT_SUMMARY = re.compile(rb'\n  "summary": ("(?:[^"\\]|\\.)*+")')
_WORKSPACE = re.compile(r"\*\*Workspace Directories:\*\*\n\s+- (.+)")
# How the rendered prompt of the first agents began, the only sign in their files.
_RENDERED = "Your task is to "
_MESSAGES_KEY = re.compile(r'"messages"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_USER = re.compile(r'"type"\s*:\s*"user"')
# The prompt in a message that is too long for the head.
_CUT_PROMPT = re.compile(r'"(?:content|text)"\s*:\s*("(?:[^"\\]|\\.){1,1000})')


class FileEnds(NamedTuple):
    """The first and last 64 KiB of a file, the same bytes where it is short; `size` is bytes.

    Where the first 64 KiB have only the client's context, and the file has at most 1 MiB, `head` is
    the whole file: else the conversation behind the context would be missed.
    """

    head: bytes
    tail: bytes
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether the head is all there is."""
        return len(self.head) >= self.size


class FileHead(NamedTuple):
    """What the head of a file says; texts are empty where they are missing.

    `kind` is "main", "subagent" or empty. `rendered` is whether the first prompt is an agent's,
    `talks` whether the file has any text of a person or a model.
    """

    family: str | None
    session_id: str
    kind: str
    rendered: bool
    talks: bool

    @property
    def may_be_child(self) -> bool:
        """Whether it is a subagent's, or may be one of a client that did not write the kind."""
        return self.kind == "subagent" or (not self.kind and self.rendered)


def read_ends(source: Source) -> FileEnds:
    """Read the two ends of a source. Raises `AgentsdirError` when it cannot be read."""
    with source.open() as stream:
        return ends_of(stream)


def ends_of(stream: BinaryIO) -> FileEnds:
    """Read the two ends of an open file."""
    head = stream.read(END)
    size = stream.seek(0, 2)
    if size <= END:
        return FileEnds(head, head, size)
    if size <= _MOST and _CONTEXT in head and not _is_talk(FileEnds(head, b"", size)):
        stream.seek(0)
        head = stream.read()
        return FileEnds(head, head, size)
    stream.seek(size - END)
    return FileEnds(head, stream.read(), size)


def peek(ends: FileEnds) -> FileHead:
    """Return what the two ends of a file say. Never raises for what the bytes hold."""
    family = family_of(ends.head)
    if family not in (LOG, DOCUMENT):
        return FileHead(family, "", "", rendered=False, talks=False)
    said = next((message for message in messages(ends, family) if _speaks(message)), None)
    return FileHead(
        family,
        id_of(ends.head[:BEGINNING]),
        _kind_of(ends, family),
        rendered=said is not None and prompt_of(said).startswith(_RENDERED),
        # A file that is longer than both ends has more than the client's context.
        talks=said is not None or not ends.is_whole,
    )


def _is_talk(ends: FileEnds) -> bool:
    return any(_speaks(message) for message in messages(ends, LOG))


def _kind_of(ends: FileEnds, family: str) -> str:
    """Return the kind: a log has it in its first row, a document behind all messages."""
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
    """Return a string of the object at the beginning of `text`, by its key; empty for none."""
    if name not in text:
        return ""
    for key, at in top_keys(text.removeprefix(b"\xef\xbb\xbf").lstrip()):
        if key == b'"' + name + b'"':
            shift = len(text) - len(text.removeprefix(b"\xef\xbb\xbf").lstrip())
            found = _TEXT.match(text, at + shift)
            return found[1].decode(errors="replace") if found else ""
    return ""


def id_of(beginning: bytes) -> str:
    """Return the session's id in a file's first `BEGINNING` bytes; empty for none.

    A log has it in the first row, a document in the first lines.
    """
    line = beginning.partition(b"\n")[0]
    return _own(beginning if line.strip() == b"{" else line, b"sessionId")


def messages(ends: FileEnds, family: str) -> Iterator[dict[str, Any]]:
    """Yield the complete messages of the head, and of a log's tail, in order."""
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


def rows(ends: FileEnds, word: bytes = b"") -> Iterator[dict[str, Any]]:
    """Yield the complete rows in the ends of a log that contain a word, in order."""
    for data in (ends.head,) if ends.is_whole else (ends.head, ends.tail):
        if word in data:
            for line in data.split(b"\n"):
                if word in line and isinstance(row := _decode(line), dict):
                    yield row


def started(ends: FileEnds) -> str:
    """Return when a session began, from its header; empty for none."""
    return _own(ends.head[:BEGINNING], b"startTime")


def workspace_of(ends: FileEnds, family: str) -> str:
    """Return the first workspace folder in the client's context; empty for none.

    Only newer clients write it, and the header of a subagent.
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


def summary_of(ends: FileEnds, family: str) -> str:
    """Return the client's last title of a session; empty for none."""
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
    """Return the text that a person typed in a message; empty for none."""
    if role_of(message) != "user":
        return ""
    shown = message.get("displayContent")
    for part in parts_of(content_of(message) if shown is None else shown):
        if part_kind(part) == "text" and not is_client(part["text"]) and part["text"].strip():
            return str(part["text"])
    return ""


def cut_prompt(ends: FileEnds, family: str) -> str:
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
    """Yield the complete messages of a document's head, then the text behind them."""
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
        try:  # orjson refuses half a surrogate pair, json does not
            return json.loads(line)
        except (ValueError, RecursionError):  # damaged, or cut by the end of what was read
            return None


# Files with the same session id: twins, copies and stubs.
#
# Each is read as a session of its own, because the id does not tell which file has what. A finding
# names the others (docs/clients/gemini.md, "One id, several files").

_NAMED = 3


def shared_ids(files: Iterable[tuple[str, str]]) -> dict[str, tuple[Finding]]:
    """Return a finding for each file whose session id other files have too.

    Args:
        files: names of main files in order, each with its session id; empty ids are left out.
    """
    by_id: dict[str, list[PurePath]] = {}
    for name, session_id in files:
        by_id.setdefault(session_id, []).append(PurePath(name))
    return {
        str(one): (Finding("shared-id", str(one), _message(one, others)),)
        for session_id, paths in by_id.items()
        if session_id and len(paths) > 1
        for one in paths
        if (others := [other for other in paths if other != one])
    }


def _message(one: PurePath, others: list[PurePath]) -> str:
    said = []
    twins = [other for other in others if other.with_suffix("") == one.with_suffix("")]
    copies = [other for other in others if other.name == one.name]
    rest = [other for other in others if other not in twins and other not in copies]
    if twins:
        older, newer = (one, twins[0]) if one.suffix == ".json" else (twins[0], one)
        said.append(f"{newer.name} goes on from its twin {older.name}")
    if copies:
        said.append(f"copies stand in {_some(str(other.parent) for other in copies)}")
    if rest:
        said.append(f"so have {_some(other.name for other in rest)}")
    return "the session id is not this file's alone: " + "; ".join(said)


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _NAMED
    return ", ".join(every[:_NAMED]) + (f" and {more} more" if more > 0 else "")


# Grouping: a session is a main chat with the threads of its subagents.
#
# A session is a file, not a session id: stubs, `.json` and `.jsonl` twins and imports share ids,
# and each is a session of its own. Only subagents join the file that called them.

_FALLBACK_FAMILIES = (PROMPTS, CHECKPOINT)


class _Candidate(NamedTuple):
    source: Source
    head: FileHead
    size: int

    @property
    def is_main(self) -> bool:
        """Whether it is a session's main file, as far as is known."""
        head = self.head
        return head.family in (LOG, DOCUMENT) and head.kind != "subagent" and not head.rendered

    @property
    def folder(self) -> PurePath:
        return PurePath(self.source.name).parent


def group(sources: Sequence[Source]) -> list[SessionFiles]:
    """Return sessions in the order of their first files, each subagent behind its main file.

    Sessions from fallback sources come last.
    """
    every = [_peek(one) for one in sources if OUTPUTS not in PurePath(one.name).parts]
    files = [one for one in every if one.head.family not in _FALLBACK_FAMILIES]
    mains: dict[tuple[PurePath, str], list[_Candidate]] = {}
    for file in files:
        if file.head.kind != "subagent":
            mains.setdefault((file.folder, file.head.session_id), []).append(file)
    remarks = shared_ids((one.source.name, one.head.session_id) for one in files if one.is_main)
    children: dict[int, list[_Candidate]] = {}
    taken: set[int] = set()
    for file in files:
        owner = _owner(file, mains)
        if owner is not None:
            children.setdefault(id(owner), []).append(file)
            taken.add(id(file))
    sessions = [
        SessionFiles(
            (
                Transcript(file.source, "subagent" if file.head.kind == "subagent" else "main"),
                *(Transcript(child.source, "subagent") for child in children.get(id(file), ())),
            ),
            remarks.get(file.source.name, ()),
        )
        for file in files
        if id(file) not in taken
    ]
    return _with_fallback_sources(sessions, every) if len(files) < len(every) else sessions


def _with_fallback_sources(
    sessions: list[SessionFiles], files: list[_Candidate]
) -> list[SessionFiles]:
    known: dict[PurePath, set[str]] = {}
    mains: dict[PurePath, list[Source]] = {}
    by_id: dict[str, list[Source]] = {}
    for file in files:
        if file.is_main and file.head.talks:
            project = project_of(file.source.name)
            known.setdefault(project, set()).add(file.head.session_id)
            mains.setdefault(project, []).append(file.source)
            by_id.setdefault(file.head.session_id, []).append(file.source)
    last = [(one.source, one.head.family) for one in files if one.head.family in _FALLBACK_FAMILIES]
    chosen, passed = fallback_sources(last, known, mains, by_id)
    first, *rest = sessions + chosen
    return [first._replace(remarks=first.remarks + passed), *rest]


def _peek(source: Source) -> _Candidate:
    ends = read_ends(source)
    return _Candidate(source, peek(ends), ends.size)


def _owner(
    file: _Candidate, mains: dict[tuple[PurePath, str], list[_Candidate]]
) -> _Candidate | None:
    """Return the main file of a subagent's file: by folder, or by session id in the same folder.

    Of several with that id it is the largest: the others are stubs or older twins.
    """
    head = file.head
    if not head.may_be_child:
        return None
    found: list[_Candidate] = []
    if head.kind == "subagent":
        found = mains.get((file.folder.parent, file.folder.name), [])
    if not found and head.session_id:
        flat = mains.get((file.folder, head.session_id), [])
        found = [main for main in flat if not main.head.may_be_child]
    return max(found, key=lambda main: main.size) if found else None


# Fallback sources: prompt logs and saved chats are read for sessions without a file of their own.

# How long before and after a prompt was typed its message may be written.
_MOMENT, _MOMENTS = timedelta(seconds=1), timedelta(seconds=10)
# The command with which clients before 0.39 removed prompts from a session's file.
_REWIND = "/rewind"


def project_of(name: str) -> PurePath:
    """Return the project's folder of a session's file or another file of the client."""
    path = PurePath(name)
    for above in path.parents:
        if above.name in (CHATS, "checkpoints"):
            return above.parent
    return path.parent


def fallback_sources(
    files: Iterable[tuple[Source, str | None]],
    known: Mapping[PurePath, Set[str]],
    mains: Mapping[PurePath, Sequence[Source]],
    by_id: Mapping[str, Sequence[Source]],
) -> tuple[list[SessionFiles], tuple[Finding, ...]]:
    """Choose among prompt logs and saved chats, in the order given; each is one session.

    A finding names each file that is not chosen.

    Args:
        files: each with its family.
        known: the sessions that have files of their own, by project.
        mains: these files, by project.
        bearers: these files, by the session's id: a project may be kept in two folders.
    """
    chosen: dict[str, Source] = {}
    passed: list[str] = []
    # The last of one session's saved chats has all that the others have.
    latest: dict[tuple[PurePath, str], str] = {}
    # A newer client copies a project's folder under its new name.
    copies: dict[bytes, PurePath] = {}
    chats: dict[PurePath, list[tuple[str, list[set[str]]]]] = {}
    logs: list[Source] = []
    for source, family in files:
        data = source.read()
        project = project_of(source.name)
        if copies.setdefault(sha256(data).digest(), project) != project:
            passed.append(source.name)
            continue
        if family == PROMPTS:
            logs.append(source)
            chosen[source.name] = source
            continue
        document = ListDocument(data)
        session, asked = session_of(document.around), _asked(document)
        if session:
            is_covered = session in known.get(project, ())
        else:
            is_covered = any(_follows(asked, _said(main)) for main in mains.get(project, ()))
        if is_covered:
            passed.append(source.name)
            continue
        chosen[source.name] = source
        if session and (project, session) in latest:
            before = latest[project, session]
            del chosen[before]
            passed.append(before)
        latest[project, session] = source.name
        chats.setdefault(project, []).append((session, asked))
    skipped: dict[str, frozenset[str]] = {}
    rewound: dict[str, frozenset[str]] = {}
    written: set[str] = set()
    for source in logs:
        project = project_of(source.name)
        own = known.get(project, frozenset())
        every = prompts_in(source.read())
        rest = [one for one in every if str(one["sessionId"]) not in own]
        near = list(mains.get(project, ()))
        for session in {str(one["sessionId"]) for one in rest}:
            near += by_id.get(session, ())
        entries = {content_id(one) for one in rest}
        elsewhere = frozenset(entries & written)
        if rest:
            elsewhere |= _spoken(rest, near)
        for session, asked in chats.get(project, ()):
            elsewhere |= _saved(rest, session, asked)
        written |= entries
        left: frozenset[str] = frozenset()
        if rest or any(one["message"].strip() == _REWIND for one in every):
            here, left = _in_sessions(every, by_id, mains.get(project, ()))
            elsewhere |= here
        skipped[source.name], rewound[source.name] = elsewhere | own, left
        if elsewhere >= entries and not left:
            del chosen[source.name]
            passed.append(source.name)
    message = "other files beside it tell its sessions better"
    sessions = [
        SessionFiles(
            (
                Transcript(
                    one,
                    "main",
                    skipped=skipped.get(one.name, frozenset()),
                    rewound=rewound.get(one.name, frozenset()),
                ),
            )
        )
        for one in chosen.values()
    ]
    return sessions, tuple(Finding("skipped-file", name, message) for name in passed)


def _asked(document: ListDocument) -> list[set[str]]:
    """Return the prompts of a saved chat, in order, each with all its spellings."""
    asked = []
    for row in document.rows(LISTS, "", Tally(), lambda _finding: None):
        role, parts = turn_of(row.value)
        if role == "user":
            for draft in prompt_drafts({"content": parts}):
                if draft.kind == "user_message":
                    shown = draft.fields["content"]
                    first = shown if isinstance(shown, str) else text_of(shown[0].get("text"))
                    asked.append({plain_text(parts).strip(), first.strip()})
    return asked


def _said(main: Source) -> list[set[str]]:
    """Return the texts of user messages in a session's file, in order."""
    return [
        {plain_text(content_of(one)).strip(), plain_text(one.get("displayContent")).strip()}
        for one in _messages(main.read())
        if one.get("type") == "user"
    ]


def _follows(asked: list[set[str]], said: list[set[str]]) -> bool:
    """Tell whether all prompts are among the texts, in this order."""
    rest = iter(said)
    return all(any(one & other for other in rest) for one in asked)


def _saved(prompts: list[dict[str, Any]], session: str, asked: list[set[str]]) -> frozenset[str]:
    """Return the prompts that a saved chat contains, of the one session that has all of it.

    Args:
        prompts: the entries, in order.
        session: the chat's session; empty if it is unknown.
        asked: the chat's prompts (`_asked`).
    """
    by_session: dict[str, list[dict[str, Any]]] = {}
    for prompt in prompts:
        by_session.setdefault(str(prompt["sessionId"]), []).append(prompt)
    for name, entries in by_session.items():
        found: list[str] = []
        rest = iter(asked)
        wanted = next(rest, None)
        for entry in entries:
            if wanted is not None and entry["message"].strip() in wanted:
                found.append(content_id(entry))
                wanted = next(rest, None)
        if found and wanted is None and session in ("", name):
            return frozenset(found)
    return frozenset()


def _spoken(prompts: list[dict[str, Any]], mains: Iterable[Source]) -> frozenset[str]:
    """Return the prompts that sessions' files contain, also under another id.

    A client that resumes a session logs prompts under the id of its own run (0.38). The message is
    written a moment after the prompt was typed.
    """
    moments: dict[str, list[datetime]] = {}
    for main in mains:
        for message in _messages(main.read()):
            moment = moment_of(message.get("timestamp"))
            if message.get("type") == "user" and moment is not None:
                shown = message.get("displayContent")
                said = plain_text(content_of(message) if shown is None else shown).strip()
                moments.setdefault(said, []).append(moment)
    found = set()
    for prompt in prompts:
        typed = moment_of(prompt.get("timestamp"))
        times = moments.get(prompt["message"].strip(), [])
        for moment in times:
            if _is_soon(typed, moment):
                found.add(content_id(prompt))
                times.remove(moment)
                break
    return frozenset(found)


def _in_sessions(
    prompts: list[dict[str, Any]],
    by_id: Mapping[str, Sequence[Source]],
    mains: Sequence[Source],
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the entries that their sessions' files contain, and those that a rewind removed.

    Args:
        prompts: the entries of all sessions, in order.
        bearers: the sessions' files, by id.
        mains: those of the project.
    """
    by_session: dict[str, list[dict[str, Any]]] = {}
    for prompt in prompts:
        by_session.setdefault(str(prompt["sessionId"]), []).append(prompt)
    here: set[str] = set()
    left: set[str] = set()
    for session, entries in by_session.items():
        files = [one for one in by_id.get(session, ()) if one in mains]
        if not files:
            continue
        written = _written(entries, files)
        here.update(content_id(entries[at]) for at in written)
        gone: list[dict[str, Any]] = []
        taken_out: list[dict[str, Any]] = []
        for at, entry in enumerate(entries):
            if entry["message"].strip() == _REWIND:
                taken_out += gone
                gone.clear()
            elif at in written:
                gone.clear()
            elif not names_command(entry["message"]):
                gone.append(entry)
        left.update(content_id(entry) for entry in taken_out)
        if taken_out:  # prompts after /clear have the old id, and are in a new file
            here |= _spoken(taken_out, (one for one in mains if one not in files))
    return frozenset(here), frozenset(left - here)


def _written(entries: list[dict[str, Any]], files: Iterable[Source]) -> set[int]:
    """Return the indexes of entries that a session's files contain: each message is one entry's.

    A message belongs to the entry with its text, if possible one typed just before. Several prompts
    that waited are one message. The client expands some prompts: a message that is left belongs to
    the last entry before it.
    """
    said: dict[str, tuple[datetime | None, set[str]]] = {}
    for one in (one for file in files for one in _messages(file.read())):
        texts = {plain_text(content_of(one)).strip(), plain_text(one.get("displayContent")).strip()}
        if one.get("type") == "user" and texts != {""}:
            said[text_of(one.get("id")) or content_id(one)] = moment_of(one.get("timestamp")), texts
    by_text: dict[str, list[str]] = {}
    for name, (_, texts) in said.items():
        for text in texts | {piece for whole in texts for piece in whole.split("\n\n")}:
            by_text.setdefault(text.strip(), []).append(name)
    typed = [(moment_of(one.get("timestamp")), one["message"].strip()) for one in entries]
    found: set[int] = set()
    taken: set[str] = set()
    for near in (True, False):
        # The last first: a prompt that a rewind removed may have been typed again at once.
        for at, (moment, text) in reversed([*enumerate(typed)]):
            for name in reversed(by_text.get(text, [])) if at not in found else ():
                is_free = name not in taken or text not in said[name][1]
                if is_free and (not near or _is_soon(moment, said[name][0])):
                    found.add(at)
                    taken.add(name)
                    break
    rest = sorted(
        moment for name, (moment, _) in said.items() if name not in taken and moment is not None
    )
    for at, (moment, _) in enumerate(typed):
        if at not in found and moment is not None:
            first = bisect_left(rest, moment)
            end = typed[at + 1][0] if at + 1 < len(typed) else None
            if first < len(rest) and (end is None or rest[first] < end):
                found.add(at)
    return found


def _is_soon(typed: datetime | None, written: datetime | None) -> bool:
    """Tell whether a message was written when a prompt was typed."""
    return typed is not None and written is not None and -_MOMENT <= written - typed <= _MOMENTS


def _messages(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the messages of a log or a document."""
    for line in (data,) if family_of(data[:HEAD]) == DOCUMENT else data.split(b"\n"):
        try:
            row = dict_of(orjson.loads(line)) if line else {}
        except orjson.JSONDecodeError:
            continue
        listed = dict_of(row.get("$set", row)).get("messages")
        yield from (dict_of(one) for one in list_of(listed) or [row])
