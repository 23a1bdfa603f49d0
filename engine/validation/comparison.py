"""One agent's derived files beside the fold of its whole log: what `replay --check` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.validation.derived import REMADE, DerivedFiles, Outcome
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import read_agent, without_live_tail
from agentsdir.formats.directory.derived import MANIFEST

if TYPE_CHECKING:
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.records import Record
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.findings import Finding

TRIES = 3


class Compared(NamedTuple):
    """One derived file, by its path in the agent's folder, and what it is beside the log."""

    file: str
    outcome: Outcome

    @property
    def fails(self) -> bool:
        """Whether the file is not what a writer could have left there."""
        return self.outcome.status not in ("same", "stale")

    def as_json(self) -> dict[str, Any]:
        """Return one line of `replay --check --json`."""
        return {
            "type": "derived",
            "file": self.file,
            "status": self.outcome.status,
            "pointer": self.outcome.pointer,
            "reason": self.outcome.reason,
        }

    def __str__(self) -> str:
        """Render as a line for people."""
        status, reason, pointer = self.outcome
        place = f" at {pointer}" if pointer else ""
        return f"{self.file}: {status}" + (f": {reason}{place}" if reason else "")


def compare_derived(paths: AgentPaths) -> tuple[list[Compared], list[Finding]]:
    """Compare each derived file with the log; return this, and what is wrong with the log.

    Damage in the log is passed over, as `restore` would: what the rest of it says is compared.
    Takes no lock; what a living writer is about to write is not missing yet. Raises what
    `read_agent` raises.
    """
    for _ in range(TRIES):
        size = _log_size(paths)
        compared, findings = _compare(paths)
        # A file may have been looked for before the event came that made it.
        if not any(one.fails for one in compared) or _log_size(paths) == size:
            break
    if locks.is_held(paths.turn):
        compared = [one if one != NO_MANIFEST else AWAITED for one in compared]
    return compared, findings


def _compare(paths: AgentPaths) -> tuple[list[Compared], list[Finding]]:
    files = DerivedFiles(paths, str)

    def follow(state: AgentState, record: Record | None) -> None:
        for _problem in files.follow(record, state):
            pass  # `validate` is who tells of these

    try:
        reading = read_agent(paths, whole=True, follow=follow)
        for _problem in files.history.finish(sound=True):
            pass
        outcomes = files.outcomes(reading.state)
    finally:
        files.close()
    compared = [Compared(file, outcome) for file, outcome in outcomes.items()]
    return compared, without_live_tail(paths, reading.findings)


def _log_size(paths: AgentPaths) -> int:
    try:
        return paths.log.lstat().st_size
    except OSError:  # whoever reads it says why
        return 0


NO_MANIFEST = Compared(MANIFEST, Outcome("missing", REMADE))
AWAITED = Compared(MANIFEST, Outcome("stale", "a living writer has yet to make it"))
