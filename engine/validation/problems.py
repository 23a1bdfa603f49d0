"""A problem, and the table of all it can be (docs/operations.md, "What `validate` finds")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats.errors import UnsafePath
from agentsdir.formats.reading.findings import ERROR, INFO, KINDS, WARNING

if TYPE_CHECKING:
    from agentsdir.formats.errors import Invalid, NotRecorded
    from agentsdir.formats.reading.findings import Finding

# id → (severity, meaning); the ids of readers' findings can be problems too.
PROBLEMS: dict[str, tuple[str, str]] = {
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


class Problem(NamedTuple):
    """One breach or remark: file, line from 1, byte offset in the file, JSON pointer in the value.

    What does not apply is None.
    """

    id: str
    file: str
    reason: str
    line: int | None = None
    offset: int | None = None
    pointer: str | None = None

    @property
    def severity(self) -> str:
        """`error`, `warning` or `info`, fixed per id."""
        return (PROBLEMS.get(self.id) or KINDS[self.id])[0]

    @property
    def fails(self) -> bool:
        """Whether it makes `validate` exit 1."""
        return self.severity != INFO

    def as_json(self) -> dict[str, Any]:
        """Return one line of `validate --json`."""
        return {
            "id": self.id,
            "severity": self.severity,
            "file": self.file,
            "line": self.line,
            "offset": self.offset,
            "pointer": self.pointer,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        """Render as compilers do: ``file:line: id: reason at /pointer (byte N)``."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        inside = f" at {self.pointer}" if self.pointer else ""
        where = "" if self.offset is None else f" (byte {self.offset})"
        # Names and keys may hold line feeds, and must not look like a problem of their own.
        return f"{place}: {self.id}: {self.reason}{inside}{where}".replace("\n", "\\n")


def from_finding(finding: Finding) -> Problem:
    """Return a reader's finding as a problem."""
    return Problem(finding.id, finding.file, finding.message, finding.line, finding.offset)


def from_refusal(error: Invalid | NotRecorded, file: str) -> Problem:
    """Return why a file could not be opened as a problem."""
    kind = "unsafe-path" if isinstance(error, UnsafePath) else "unreadable"
    return Problem(kind, file, error.message)
