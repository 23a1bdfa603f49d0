"""Kinds of rows and parts that a reader does not know: signs of a newer client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentsdir.formats.reading.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.reading.blocks import BlockSource

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

    def findings(self) -> Iterator[Finding]:
        """Yield one `drift` finding for each kind, placed at its first instance."""
        for (what, name), kind in self._kinds.items():
            place = kind.source
            label = f"{what} {name!r}" if name else what
            versions = ", ".join(sorted(kind.versions))
            client = f" (client {versions})" if versions else ""
            message = f"{label}: unknown, x {kind.count}{client}"
            yield Finding(
                "drift", place["file"], place["line"], place["offset"], place["length"], message
            )
