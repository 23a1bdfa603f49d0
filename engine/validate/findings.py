"""What `validate` finds, and the check of one JSON text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.formats import jsontext
from agentsdir.formats.blocks import BLOCKS, EVENT_TYPES
from agentsdir.formats.errors import UnsafePath
from agentsdir.formats.findings import Finding
from agentsdir.formats.rows import salvage
from agentsdir.schemas import check, places
from agentsdir.schemas.violations import shown

if TYPE_CHECKING:
    from agentsdir.formats.errors import Invalid, NotRecorded
    from agentsdir.formats.store.log import Record

_COMPACT = orjson.OPT_STRICT_INTEGER
_LINE = orjson.OPT_STRICT_INTEGER | orjson.OPT_APPEND_NEWLINE
_INDENTED = orjson.OPT_STRICT_INTEGER | orjson.OPT_INDENT_2
_LINE_FORMS = (_COMPACT, _INDENTED)
_DOCUMENT_FORMS = (_INDENTED, _COMPACT)
_BRANCHED = ("event", "block", "stream-event", "script-line", "descriptor", "history-entry")
NOTHING: Any = object()
_MARKED = {
    "turn": ("messageId", "turn-result"),
    "error": ("exitCode", "error"),
    "agent": ("agentId", "new-agent"),
    "archived": ("agentId", "archived"),
    "native-session": ("modifiedAt", "native-session"),
    "unarchived": ("agentId", "archived"),
    "restored": ("agentId", "restored"),
    "removed": ("agentId", "removed"),
    "interrupted": ("turns", "interrupted"),
    "abort-cleared": ("agentId", "abort-cleared"),
    "closed": ("agentId", "closed"),
    "spawned": ("agentId", "spawned"),
    "outgoing": ("agentId", "outbox-entry"),
    "trusted": ("root", "trusted"),
    "untrusted": ("root", "trusted"),
    "derived": ("status", "derived"),
    "permission": ("holds", "permission"),
    "setting": ("key", "setting"),
    "agent-settings": ("agentId", "agent-settings"),
}
_CONTROL = {"turn": set[str](), "sleep": {"seconds"}, "error": {"kind", "message"}}
# Documents without a discriminator, recognised by keys that only they have together.
_SHAPES: tuple[tuple[str, frozenset[str]], ...] = (
    ("session", frozenset({"id", "state", "provider_name"})),
    ("state", frozenset({"sessionId", "logSize"})),
    ("session-runtime", frozenset({"sessionId", "blocks"})),
    ("session-saved", frozenset({"sessionId", "workspaceFiles"})),
    ("inspection", frozenset({"sessionId", "log"})),
    ("session-snapshot", frozenset({"sessionId", "timeline"})),
    ("session-list", frozenset({"sessionId", "status"})),
    ("parse-report", frozenset({"lines", "conversations"})),
    ("route", frozenset({"agentId", "key"})),
    ("outgoing-text", frozenset({"agent_id", "channelId"})),
    ("usage", frozenset({"inputTokens", "totalTokens"})),
    ("workspace-manifest", frozenset({"cwd", "files"})),
    ("adapter", frozenset({"name", "builtIn"})),
    ("problem", frozenset({"id", "severity", "reason"})),
    ("finding", frozenset({"id", "severity", "message"})),
)
_DESCRIBED = {
    "user": {"connector", "userId", "channelId"},
    "cron": {"id"},
    "heartbeat": {"type"},
    "subagent": {"parentAgentId"},
}


def from_refusal(error: Invalid | NotRecorded, file: str) -> Finding:
    """Return why a file could not be opened as a finding."""
    kind = "unsafe-path" if isinstance(error, UnsafePath) else "unreadable"
    return Finding(kind, file, error.message)


class JSONText(NamedTuple):
    """A JSON text inside a file: where it begins, and its bytes (a last LF may be among them)."""

    file: str
    line: int
    offset: int
    data: bytes

    def finding(self, kind: str, reason: str, pointer: str = "") -> Finding:
        """Return a finding with the value at `pointer`, placed at its line and byte."""
        # The whole value is where the text begins: a hostile text is not searched for it.
        begin = len(self.data) - len(self.data.lstrip(b" \t\r\n"))
        at = places.find(self.data, pointer) if pointer else begin
        return self.finding_at(kind, reason, at, pointer)

    def finding_at(self, kind: str, reason: str, at: int, pointer: str = "") -> Finding:
        """Return a finding placed at byte `at` of the text."""
        line = self.line + self.data.count(b"\n", 0, at)
        return Finding(kind, self.file, reason, line, self.offset + at, pointer=pointer or None)


def as_written(record: Record, data: bytes) -> dict[str, Any] | None:
    """Return the value of a log line that is, byte for byte, what a writer makes of its record.

    For such a line `decode` has no remark. None for any other line.
    """
    value = record._asdict()
    if data.count(b"[") + data.count(b"{") > jsontext.MAX_DEPTH:
        return None
    try:
        return value if data == orjson.dumps(value, option=_LINE) else None
    except TypeError:  # a big integer, or deeper than orjson writes
        return None


def decode(piece: JSONText, findings: list[Finding], *, document: bool) -> Any:
    """Return the value of a piece, or `NOTHING` when it is no JSON; remarks go to `findings`."""
    try:
        value = orjson.loads(piece.data)
    except orjson.JSONDecodeError as error:
        findings.append(_not_json(piece, error, document=document))
        return NOTHING
    brackets = piece.data.count(b"[") + piece.data.count(b"{")
    if brackets > jsontext.MAX_DEPTH and jsontext.deeper_than(value, jsontext.MAX_DEPTH):
        # Where the flaws of such a text stand is not worth the time that a search would take.
        findings.append(piece.finding("too-deep", f"nests deeper than {jsontext.MAX_DEPTH} levels"))
        return value
    if not _is_canonical(value, piece.data, _DOCUMENT_FORMS if document else _LINE_FORMS):
        for place in places.flaws(piece.data):
            reason = (
                "the key stands in its object twice"
                if place.flaw == "duplicate-key"
                else "the integer is beyond 2^53 - 1"
            )
            findings.append(piece.finding_at(place.flaw, reason, place.offset, place.pointer))
    return value


def breaches(kind: str, value: Any, piece: JSONText) -> list[Finding]:
    """Return what in a decoded value breaks the schema of `kind`."""
    violations = check(kind, value)
    if not violations:
        return []
    # A block is a block of some type, and that is what its reader looks for.
    field = "event" if kind == "event" else "type"
    branch = value.get(field) if isinstance(value, dict) and kind in _BRANCHED else None
    label = f"{kind} {branch:.40}" if isinstance(branch, str) else kind
    return [piece.finding("schema", f"{label}: {v.reason}", v.pointer) for v in violations]


def _is_canonical(value: Any, data: bytes, forms: tuple[int, int]) -> bool:
    """Tell whether `data` is how we would write `value`: then no reader can see it otherwise.

    Args:
        forms: options of the two forms that we write, the likelier one first.
    """
    body = data.removesuffix(b"\n")
    try:
        return any(body == orjson.dumps(value, option=form) for form in forms)
    except TypeError:  # a big integer, or deeper than orjson writes
        return False


def _not_json(piece: JSONText, error: orjson.JSONDecodeError, *, document: bool) -> Finding:
    text = piece.data.decode(errors="replace")
    if document:
        ends = error.pos >= len(text.rstrip())
        at = len(text[: error.pos].encode())
        kind = "half-document" if ends and text.strip() else "bad-json"
        return piece.finding_at(kind, f"not JSON: {error.msg}", min(at, len(piece.data)))
    found = salvage(piece.data)
    kind = found.finding or "bad-json"
    return Finding(kind, piece.file, found.message or "not JSON", piece.line, piece.offset)


def kind_of_line(value: Any) -> str | None:
    """Return which kind of line an object is, by its discriminator; None for none of ours.

    Foreign transcripts share some of our words, so a word alone is not enough.
    """
    if not isinstance(value, dict):
        return None
    keys = value.keys()
    if isinstance(value.get("event"), str) and {"seq", "prev", "session_id"} & keys:
        return "event"
    if "type" not in keys and "agentId" in keys:
        return "session-list"
    kind = value.get("type")
    if not isinstance(kind, str):
        return None
    if kind in EVENT_TYPES:
        return "stream-event"
    if kind in ("start", "reset") and {"at", "seq"} & keys:
        return "history-entry"
    if {"id", "conversationId"} <= keys or (
        kind in BLOCKS and {"id", "conversationId"} & keys and "parentAgentId" not in keys
    ):
        return "block"
    if kind in _MARKED and _MARKED[kind][0] in keys:
        return _MARKED[kind][1]
    if kind in _CONTROL and keys - {"type"} <= _CONTROL[kind]:
        return "script-line"
    return None


def kind_of_document(value: Any) -> str | None:
    """Return which kind of document a value is, by its shape; None for none of ours."""
    if not isinstance(value, dict):
        return None
    if value.get("format") == "agentsdir":
        return "agentsdir"
    if kind_of_line(value) == "block":  # which has some fields of other documents
        return "block"
    for kind, keys in _SHAPES:
        if keys <= value.keys():
            return kind
    if line := kind_of_line(value):
        return line
    files = value.get("files")
    if isinstance(files, list) and all(isinstance(f, dict) and "sha256" in f for f in files):
        return "manifest"
    if _DESCRIBED.get(str(value.get("type")), set()) & value.keys():
        return "descriptor"
    return None


def difference(
    wanted: Any, found: Any, pointer: str = "", depth: int = 0
) -> tuple[str, str] | None:
    """Return pointer and reason of the first difference; fields that only `found` has are none.

    A newer program may add fields to a derived file, and is not wrong about it. What nests deeper
    than the format allows is passed over: that is said of it already.
    """
    if depth > jsontext.MAX_DEPTH:
        return None
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            here = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in found:
                return here, "lacks what the log says"
            if inner := difference(value, found[key], here, depth + 1):
                return inner
        return None
    if isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            return pointer, f"holds {len(found)} items, the log says {len(wanted)}"
        for index, (left, right) in enumerate(zip(wanted, found, strict=True)):
            if inner := difference(left, right, f"{pointer}/{index}", depth + 1):
                return inner
        return None
    if type(wanted) is type(found) and wanted == found:
        return None
    return pointer, f"holds {shown(found)}, the log says {shown(wanted)}"
