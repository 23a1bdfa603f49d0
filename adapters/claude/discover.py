"""Which files are Claude's, and which of them make up a session."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.claude.shapes import agent_id
from agentsdir.adapters.protocol import SessionFiles, Transcript
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.rows import salvage
from agentsdir.formats.source import Source, heads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence


# Detection: whether a file is a transcript or recorded output of Claude Code, by its content.

_BOM = b"\xef\xbb\xbf"
_MAX_ROWS = 64
_MAX_SALVAGED = 4
# Keys at the top of other programs' rows, and of our own stream events and blocks.
_FOREIGN = frozenset(
    {
        "projectHash",
        "payload",
        "conversationId",
        "blockId",
        "systemPayload",
        "usageMetadata",
        "toolCallResult",
    }
)
_STREAMED = frozenset(
    [
        "system",
        "assistant",
        "user",
        "result",
        "stream_event",
        "control_request",
        "control_response",
        "control_cancel_request",
        "keep_alive",
        "tool_progress",
        "tool_use_summary",
        "auth_status",
        "rate_limit_event",
        "prompt_suggestion",
        "conversation_reset",
        "transcript_mirror",
    ]
)
_MESSAGES = frozenset({"user", "assistant", "system", "attachment", "progress"})
# Rows that name a session and no message. Other programs' rows have a session's id, too.
_NOTES = frozenset(
    [
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "atis-latch",
        "content-replacement",
        "cost-state",
        "custom-title",
        "file-history-delta",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "queue-operation",
        "summary",
        "tag",
        "tools-used",
        "worktree-state",
    ]
)
# How the first line begins when it is so long that the head holds only a part of it.
_LONG_ROW = re.compile(
    rb'\s*\{"(?:parentUuid|logicalParentUuid|type|sessionId|uuid|isSidechain|message)":'
)
_TYPE = re.compile(rb'"type":\s*"(?:user|assistant|system|attachment|queue-operation|summary)"')
_NAMED = re.compile(rb'"(?:sessionId|session_id|parentUuid|leafUuid)":')


def detect(head: bytes) -> bool:
    """Tell whether `head`, the first bytes of a file, is Claude Code's."""
    rows = 0
    for row in head_rows(head):
        found = _judge(row)
        if found is not None:
            return found
        rows += 1
    first = head.lstrip(_BOM + b"\0 \r\n")
    if rows or b"\n" in first:
        return False
    return bool(
        _LONG_ROW.match(first)
        and _TYPE.search(first)
        and _NAMED.search(first)
        and b'"projectHash"' not in first
        and b'"conversationId"' not in first
    )


class FirstRows:
    """The first rows of a file, up to one of a conversation and to the end of that head.

    It may be iterated over several times. Rows are decoded when they are asked for, and kept: the
    first one or two answer most questions.

    Args:
        read: returns as many of the first bytes as it is given, as `Source.head` does.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._known: list[dict[str, Any]] = []
        self._more = _first_rows(read)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        at = 0
        while at < len(self._known) or self._decode_next():
            yield self._known[at]
            at += 1

    def _decode_next(self) -> bool:
        for row in self._more:
            self._known.append(row)
            return True
        return False


def _first_rows(read: Callable[[int], bytes]) -> Iterator[dict[str, Any]]:
    salvaged: list[bytes] = []
    begin = lines = 0
    found = False
    rest: list[dict[str, Any]] = []
    for head in heads(read):
        begin = begin or _after_mark(head)
        # Line by line, since the first one or two often are all that is wanted.
        while lines < _MAX_ROWS and (end := head.find(b"\n", begin)) >= 0:
            for row in _rows_on(head[begin:end], salvaged):
                found = found or _is_of_conversation(row)
                yield row
            begin, lines = end + 1, lines + 1
        if lines == _MAX_ROWS:
            return
        # Of the last line, a longer head may have more.
        rest = list(_rows_on(head[begin:], salvaged[:]))
        if found or any(map(_is_of_conversation, rest)):
            break
    yield from rest


def _after_mark(head: bytes) -> int:
    return len(_BOM) if head.startswith(_BOM) else 0


def _is_of_conversation(row: dict[str, Any]) -> bool:
    return "isSidechain" in row or "session_id" in row


def head_rows(head: bytes) -> Iterator[dict[str, Any]]:
    """Yield the first rows of a file's head, those on damaged lines included."""
    salvaged: list[bytes] = []
    begin = _after_mark(head)
    for _ in range(_MAX_ROWS):
        end = head.find(b"\n", begin)
        yield from _rows_on(head[begin : end if end >= 0 else len(head)], salvaged)
        if end < 0:
            return
        begin = end + 1


def _rows_on(line: bytes, salvaged: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the rows on a line; a damaged one is added to `salvaged`, unless that is full."""
    try:
        values = [orjson.loads(line)]
    except orjson.JSONDecodeError:
        if not line.strip() or len(salvaged) == _MAX_SALVAGED:
            return
        salvaged.append(line)
        values = [value for value, _, _ in salvage(line).values]
    for value in values:
        if isinstance(value, dict):
            yield value


def _judge(row: dict[str, Any]) -> bool | None:
    """Return whether a row shows its file to be Claude's; None if it shows nothing."""
    if not _FOREIGN.isdisjoint(row):
        return False
    message = row.get("message")
    if isinstance(message, dict) and "parts" in message:  # the turns of a Gemini fork
        return False
    kind = row.get("type")
    if not isinstance(kind, str):
        return None
    if "session_id" in row and "sessionId" not in row:
        if kind not in _STREAMED:
            return None
        # Other programs print a `result` line as well; the client's has a subtype.
        return True if kind != "result" else isinstance(row.get("subtype"), str)
    if isinstance(row.get("sessionId"), str) and kind in _NOTES:
        return True
    if isinstance(row.get("sessionId"), str) and kind in _MESSAGES:
        return True if "uuid" in row or "parentUuid" in row else None
    if kind in _MESSAGES:
        return True if "uuid" in row and "parentUuid" in row else None
    if kind == "summary":
        return True if "leafUuid" in row else None
    if kind == "file-history-snapshot":
        return True if "messageId" in row else None
    return None


# Grouping: a session is a main transcript and the files of its subagents.

_SIDECHAIN = re.compile(rb'"isSidechain":\s*true')
_AGENT = re.compile(rb'"agentId":\s*"([A-Za-z0-9_.:-]{1,128})"')
SIDE_FOLDER = "subagents"


class _Head:
    """What the beginning of one file says about its place in a session.

    `session` is the one that a main transcript has by its name, or by its rows if it was renamed.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        path = PurePath(source.path if source.path is not None else source.name)
        self.folder = path.parent
        self.stem = self.session = path.stem
        try:
            rows = FirstRows(source.head)
            first = next((row for row in rows if "isSidechain" in row), None)
            if first is not None:
                self.is_child = (
                    first["isSidechain"] is True and agent_id(first.get("agentId")) is not None
                )
            else:  # a first row that is still being written
                line = source.head().split(b"\n", 1)[0]
                self.is_child = bool(_SIDECHAIN.search(line) and _AGENT.search(line))
            if not self.is_child:
                self.session = _session_of_main(rows, self.stem)
        except AgentsdirError:  # only its folder is known then
            self.is_child = SIDE_FOLDER in self.folder.parts

    def parents(self) -> Iterator[tuple[PurePath, str]]:
        """Yield where the main transcript may stand, as (folder, name without suffix)."""
        for above in (self.folder, *self.folder.parents):
            if above.name == SIDE_FOLDER:
                yield above.parent.parent, above.parent.name
        with suppress(AgentsdirError):
            for session in _sessions(FirstRows(self.source.head)):
                yield self.folder, session


def _sessions(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if isinstance(session := row.get("sessionId"), str):
            yield session


def _session_of_main(rows: Iterable[dict[str, Any]], stem: str) -> str:
    """Return the file's name if any row has it as a session, else the first session of a row."""
    first = None
    for session in _sessions(rows):
        if session == stem:
            return stem
        first = session if first is None else first
    return stem if first is None else first


def is_child(source: Source) -> bool:
    """Tell whether a file is a subagent's, by its beginning."""
    return _Head(source).is_child


def is_child_of(folder: PurePath, names: Collection[str], source: Source) -> bool:
    """Tell whether a file is a subagent's of the session that has one of `names` in `folder`."""
    head = _Head(source)
    return head.is_child and any(
        place == folder and name in names for place, name in head.parents()
    )


def discover(sources: Sequence[Source]) -> list[SessionFiles]:
    """Group transcripts into sessions, in the order in which their first files come.

    A subagent's file belongs to its main transcript when that is among `sources`. Without it, the
    file is a session of its own, read exactly as from standard input: alone, without sidecar.
    """
    heads = [_Head(source) for source in sources]
    mains = {(head.folder, head.stem): head for head in heads if not head.is_child}
    # A session may have been renamed; its rows still say which it is.
    for head in heads:
        if not head.is_child:
            mains.setdefault((head.folder, head.session), head)
    children: dict[int, list[_Head]] = {}
    alone = []
    for head in heads:
        if head.is_child:
            owner = next((mains[place] for place in head.parents() if place in mains), None)
            if owner is None:
                alone.append(head)
            else:
                children.setdefault(id(owner), []).append(head)
    sessions = []
    for head in heads:
        if head in alone:
            sessions.append(SessionFiles((Transcript(head.source, "subagent"),)))
        elif not head.is_child:
            below = children.get(id(head), ())
            files = [
                Transcript(child.source, "subagent", _sidecar(child.source)) for child in below
            ]
            sessions.append(SessionFiles((Transcript(head.source, "main"), *files)))
    return sessions


def _sidecar(source: Source) -> Source | None:
    if source.path is None:
        return None
    path = source.path.with_suffix(".meta.json")
    try:
        if not path.is_file():
            return None
    except OSError:  # a name so long that nothing can stand beside it
        return None
    return Source(str(PurePath(source.name).with_suffix(".meta.json")), path=path)
