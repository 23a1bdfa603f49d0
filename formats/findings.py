"""Findings: what readers and `validate` say about files, each with a stable id and a place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.blocks import BlockSource


# Ids are stable. Three documents list them, and tests compare: SPEC.md those of a log,
# docs/reading.md those of transcripts, docs/operations.md those that only `validate` finds.

ERROR, WARNING, INFO = "error", "warning", "info"

# id → (severity, meaning). Errors and warnings are damage: `validate` exits 1, other commands
# exit 3. Infos are remarks about undamaged input.
FINDINGS: dict[str, tuple[str, str]] = {
    "bad-json": (ERROR, "a line is not JSON, and nothing in it could be recovered"),
    "bad-utf8": (ERROR, "a line holds bytes that are not UTF-8"),
    "nul-run": (ERROR, "a run of NUL bytes stands where text should be"),
    "oversize": (ERROR, "a line is longer, or holds more values, than the reader can take"),
    "splice": (ERROR, "several records, or a stub and a record, share one line"),
    "too-deep": (ERROR, "a record nests deeper than the parser allows"),
    "torn-tail": (WARNING, "the last line has no newline and is incomplete"),
    "half-document": (ERROR, "a JSON document ends before it is complete"),
    "not-an-object": (ERROR, "a line is JSON but no object"),
    "not-a-record": (ERROR, "a line of a log is JSON, but no event record"),
    "bad-data": (ERROR, "a record does not hold what its event needs"),
    "creation-lost": (ERROR, "a log does not begin with a readable session.created"),
    "descriptor-differs": (ERROR, "descriptor.json is not what the first event says"),
    "log-shorter": (ERROR, "a log ends before what was read from it earlier: records are lost"),
    "seq-gap": (ERROR, "the sequence of a log skips or repeats a number"),
    "chain-break": (ERROR, "a record does not name the line that stands before it"),
    "stub": (INFO, "an unreadable line of a log is a write that was never acknowledged"),
    "stream-lost": (WARNING, "the recorded stream of a turn is missing, or not what was recorded"),
    "unreadable": (ERROR, "the system refuses to read a file or folder"),
    "skipped-file": (INFO, "a file in a folder is no transcript"),
    "doubtful-prompt": (INFO, "a text is shown as a person's that may be the client's"),
    "empty-file": (INFO, "a file in a folder is empty"),
    "no-messages": (INFO, "a transcript holds no conversation"),
    "last-resort": (INFO, "a source that holds a part of a session only, for want of a better"),
    "orphan-result": (INFO, "a tool result answers no call in its conversation"),
    "orphan-subagent": (INFO, "a subagent transcript could not be linked to a call"),
    "missing-parent": (INFO, "a row names a parent that is not in the file"),
    "null-parent": (INFO, "a row within a transcript names no parent, and supersedes those before"),
    "mixed-sessions": (INFO, "rows of another session stand in a transcript"),
    "shared-id": (INFO, "several transcripts bear the id of one session"),
    "unrecorded-usage": (INFO, "the client counted tokens that no row of its transcript shows"),
    "unread-output": (INFO, "the whole of an output stands in a file that is not read"),
    "drift": (INFO, "a kind of row or part that the reader does not know, as newer clients write"),
    "parent-cycle": (INFO, "rows name each other as parents"),
    # What only `validate` finds.
    "schema": (ERROR, "a value breaks the schema of its kind"),
    "duplicate-key": (ERROR, "an object has the same key twice, and readers keep either"),
    "big-integer": (ERROR, "an integer is beyond 2^53 - 1, and readers round it"),
    "unknown-kind": (ERROR, "a line among records of this format is none of them"),
    "unknown-version": (ERROR, "an agents directory is of another format or version"),
    "unknown-feature": (INFO, "an agents directory needs a feature that this program cannot write"),
    "bad-settings": (ERROR, "settings.toml cannot be read, or sets what there is not"),
    "unknown-setting": (INFO, "settings.toml sets what this program does not know"),
    "unsafe-path": (ERROR, "a link, a FIFO or another oddity stands in place of a file or folder"),
    "wide-mode": (WARNING, "other users may read or change a file or folder"),
    "leftover": (INFO, "a writer that died left a temporary file"),
    "foreign-entry": (INFO, "an entry in agents/, routes/ or slots/ does not belong there"),
    "missing": (WARNING, "a file that belongs here is not there, but can be made again"),
    "no-log": (ERROR, "an agent has no events.jsonl, and cannot be known"),
    "first-event": (ERROR, "session.created does not stand at the beginning, or not only there"),
    "id-differs": (ERROR, "the agent id inside is not the folder's"),
    "session-id-differs": (ERROR, "not all of an agent's files name the same session"),
    "illegal-transition": (ERROR, "a session went from one state to another that it cannot reach"),
    "turn-order": (ERROR, "messages and turns do not follow each other as they must"),
    "after-close": (ERROR, "a log goes on after its session's end with what cannot stand there"),
    "spawn-order": (ERROR, "a spawned agent begins, ends or is dropped when it cannot"),
    "outgoing-order": (ERROR, "an outgoing text is there twice, or delivered when it cannot be"),
    "derived-differs": (ERROR, "a derived file is not what the log says"),
    "derived-stale": (INFO, "a derived file is right, but older than the log"),
    "workspace-differs": (ERROR, "captured files are not what their manifest says"),
    "transcript-missing": (ERROR, "a raw transcript that was synced is not there"),
    "transcript-differs": (ERROR, "a raw transcript does not begin with what was synced"),
    "transcript-ahead": (INFO, "a raw transcript holds more than was recorded of it"),
    "transcript-unlisted": (INFO, "a file among the transcripts was never recorded"),
}


class Finding(NamedTuple):
    """One remark about a file: its id, what is wrong, and where.

    `line` counts from 1; `offset` and `length` are bytes within the file; `pointer` is a JSON
    pointer into the value that stands there. What does not apply is None.
    """

    id: str
    file: str
    message: str
    line: int | None = None
    offset: int | None = None
    length: int | None = None
    pointer: str | None = None

    @property
    def severity(self) -> str:
        """`error`, `warning` or `info`, fixed per id."""
        return FINDINGS[self.id][0]

    @property
    def is_damage(self) -> bool:
        """Whether it is more than a remark about undamaged input."""
        return self.severity != INFO

    def as_json(self) -> dict[str, Any]:
        """Return the object that reports and `--json` output hold (finding.schema.json)."""
        return {
            "id": self.id,
            "severity": self.severity,
            "file": self.file,
            "line": self.line,
            "offset": self.offset,
            "length": self.length,
            "message": self.message,
        }

    def as_problem(self) -> dict[str, Any]:
        """Return one line of `validate --json` (problem.schema.json)."""
        return {
            "id": self.id,
            "severity": self.severity,
            "file": self.file,
            "line": self.line,
            "offset": self.offset,
            "pointer": self.pointer,
            "reason": self.message,
        }

    def __str__(self) -> str:
        """Render as compilers do: ``file:line: id: message at /pointer (byte N)``, on one line."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        inside = f" at {self.pointer}" if self.pointer else ""
        where = "" if self.offset is None else f" (byte {self.offset})"
        # Names and keys may hold line feeds, and must not look like a finding of their own.
        return f"{place}: {self.id}: {self.message}{inside}{where}".replace("\n", "\\n")


# Kinds of rows and parts that a reader does not know: signs of a newer client.

# A damaged or hostile file can have any number of kinds; a reader of the report can use a few.
MAX_KINDS = 50
MAX_NAME = 80
_OTHERS = "other kinds"


@dataclass(slots=True)
class _Kind:
    count: int
    source: BlockSource
    versions: set[str] = field(default_factory=set)


class Drifts:
    """Counts, by kind, what a reader met and does not know.

    A kind is what it is (`row`, `subtype`, `part`, `attachment`, …) and its name in the file.
    """

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def note(self, what: str, name: str, source: BlockSource, version: str | None) -> None:
        """Count one instance.

        Args:
            what: what the kind is a kind of, in one word.
            name: its name, as the client wrote it.
            source: where it stands.
            version: the client's version, where it is known.
        """
        self._count(what, name[:MAX_NAME], 1, source, {version} if version else set())

    def add(self, other: Drifts) -> None:
        """Add the counts of `other` to these."""
        for (what, name), kind in other._kinds.items():
            self._count(what, name, kind.count, kind.source, kind.versions)

    def _count(
        self, what: str, name: str, count: int, source: BlockSource, versions: set[str]
    ) -> None:
        key = what, name
        if key not in self._kinds and len(self._kinds) >= MAX_KINDS:
            key = _OTHERS, ""
        kind = self._kinds.setdefault(key, _Kind(0, source))
        kind.count += count
        kind.versions |= versions

    def as_json(self) -> list[Any]:
        """Return the counts as plain values, of which `of_json` makes them again."""
        return [
            [what, name, kind.count, kind.source, sorted(kind.versions)]
            for (what, name), kind in self._kinds.items()
        ]

    @classmethod
    def of_json(cls, values: list[Any]) -> Drifts:
        """Return the counts of which `as_json` made these values."""
        drifts = cls()
        for what, name, count, source, versions in values:
            drifts._kinds[what, name] = _Kind(count, source, set(versions))
        return drifts

    def findings(self) -> Iterator[Finding]:
        """Yield one `drift` finding for each kind, placed at its first instance."""
        for (what, name), kind in self._kinds.items():
            place = kind.source
            label = f"{what} {name!r}" if name else what
            versions = ", ".join(sorted(kind.versions))
            client = f" (client {versions})" if versions else ""
            message = f"{label}: unknown, x {kind.count}{client}"
            yield Finding(
                "drift", place["file"], message, place["line"], place["offset"], place["length"]
            )
