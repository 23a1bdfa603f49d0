"""The chain of a main thread: which rows a rewind replaced (SPEC.md, "Claude: branches").

Rows name their parent, but the result is no chain: parallel calls fork it, results close forks
in any order, notices hang where they happened. None of that replaces anything. What does is a
second human prompt beside an earlier one. So each row belongs to the prompt it descends from
(its group), and a row is superseded exactly when its prompt is off the way to the leaf. Rows
without a rival prompt therefore always stay.
"""

from __future__ import annotations

from array import array

from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentsdir.formats.reading.rows import Row

# What a row is to the tree. A filler is the "No response requested." that a client writes
# when it resumes a session in which it sees an unanswered prompt.
PLAIN, PROMPT, FILLER, ANSWER, ASIDE = range(5)
_NONE = -1


class _Dangling(NamedTuple):
    """A row whose parent had not been read when it was."""

    row: int
    parent: str
    line: int
    offset: int
    length: int


class Tree:
    """Rows of one file by uuid, and the branches of its main thread.

    A row costs a dictionary entry and five numbers, whatever its size.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        # Per row four numbers: its parent and its group, its first block and how many it has.
        self._rows = array("l")
        self._kinds = bytearray()
        # Per group: the group it hangs from, and the row of its prompt.
        self._above: list[int] = []
        self._prompts: list[int] = []
        self._last_main = _NONE
        # Prompts that say they have no parent, with the group before them in the file.
        self._roots: list[tuple[int, int, str]] = []
        self._loose = False
        self._fillers: list[int] = []
        self._dangling: list[_Dangling] = []
        self._leaf: tuple[str, int] | None = None
        self._replaced: list[str] = []

    def add_aside(self, uuid: str | None) -> None:
        """Register a row of another thread, so that its repetition is recognised."""
        if uuid is not None:
            self.numbers[uuid] = len(self._kinds)
        self._kinds.append(ASIDE)
        self._rows.extend((_NONE, _NONE, _NONE, 0))

    def add(
        self, uuid: str | None, row: Row, kind: int, session: str, first: int, count: int
    ) -> None:
        """Place a main-thread row that gave `count` blocks from handle `first` on."""
        value = row.value
        named = value.get("parentUuid")
        bridge = self._last_main
        parent = bridge
        if isinstance(named, str):
            known = self.numbers.get(named)
            if known is None or named == uuid:
                place = _Dangling(len(self._kinds), named, row.line, row.offset, row.length)
                self._dangling.append(place)
            elif self._kinds[known] != ASIDE:
                parent = known
        elif bridge != _NONE and "parentUuid" in value:
            # A compaction starts a new chain below the old one; anything else that has no
            # parent although a chain exists shows that this writer keeps none.
            logical = value.get("logicalParentUuid")
            if isinstance(logical, str):
                parent = self.numbers.get(logical, bridge)
            elif kind != PROMPT and value.get("subtype") != "compact_boundary":
                self._loose = True
        group = self._rows[4 * parent + 1] if parent != _NONE else _NONE
        if kind == PROMPT:
            if named is None and "parentUuid" in value:
                self._roots.append((len(self._prompts), group, session))
                group = _NONE
            self._above.append(group)
            self._prompts.append(len(self._kinds))
            group = len(self._prompts) - 1
        elif kind == FILLER:
            self._fillers.append(len(self._kinds))
        number = self._last_main = len(self._kinds)
        if uuid is not None:
            self.numbers[uuid] = number
        self._kinds.append(kind)
        self._rows.extend((parent, group, first, count))

    def name_leaf(self, uuid: str) -> None:
        """Take a `last-prompt` row, which says where the conversation stood."""
        self._leaf = (uuid, len(self._kinds))

    def replace(self, uuids: Iterable[str]) -> None:
        """Take the rows that a line says it replaces; stdout only, a file loses such rows."""
        self._replaced += uuids

    def superseded(self) -> Iterator[int]:
        """Yield the handles of blocks that stand on a replaced branch, or were replaced by name."""
        for uuid in self._replaced:
            if uuid in self.numbers:
                yield from self._blocks(self.numbers[uuid])
        self._settle_roots()
        leaf = self._leaf_row()
        if leaf == _NONE:
            return
        off = self._off(self._rows[4 * leaf + 1])
        gone = self._overtaken(leaf) if self._fillers else set()
        if not gone and not any(off):
            return
        for row, group in enumerate(self._rows[1::4]):
            if (group != _NONE and off[group]) or row in gone:
                yield from self._blocks(row)

    def _blocks(self, row: int) -> range:
        first, count = self._rows[4 * row + 2 : 4 * row + 4]
        return range(first, first + count)

    def findings(self, file: str) -> Iterator[Finding]:
        """Yield what is wrong with the parents that rows name."""
        ahead: list[_Dangling] = []
        for entry in self._dangling:
            if entry.parent in self.numbers:
                ahead.append(entry)
                continue
            message = f"parent {entry.parent} is not in the file; joined to the row before"
            yield Finding("missing-parent", file, entry.line, entry.offset, entry.length, message)
        # Only a parent further down can close a circle.
        parents = self._rows[::4]
        for entry in ahead:
            parents[entry.row] = self.numbers[entry.parent]
        for entry in ahead:
            if _comes_back(parents, entry.row):
                message = f"the row is its own ancestor through {entry.parent}"
                yield Finding("parent-cycle", file, entry.line, entry.offset, entry.length, message)

    def _settle_roots(self) -> None:
        """Decide for each prompt without a parent whether it rewound to the very start.

        It did only if the file otherwise keeps its chain, and the first such prompt is of the
        same session; if not, it goes on after what stands before it.
        """
        for group, bridged, session in self._roots[1:]:
            if self._loose or session != self._roots[0][2]:
                self._above[group] = bridged

    def _leaf_row(self) -> int:
        """Return the row at which, or below which, the conversation stood at the end."""
        if not self._prompts:
            return _NONE
        if self._leaf is not None:
            leaf = self.numbers.get(self._leaf[0])
            # A prompt written after the note was made, and after the leaf, is newer than both.
            if leaf is not None and self._prompts[-1] <= max(leaf, self._leaf[1] - 1):
                return leaf
        return self._prompts[-1]

    def _off(self, anchor: int) -> list[bool]:
        """Tell for each group whether it is neither above `anchor`, nor it, nor below it."""
        if anchor == _NONE:
            return [False] * len(self._above)
        near = [False] * len(self._above)
        group = anchor
        while group != _NONE:
            near[group] = True
            group = self._above[group]
        for group in range(anchor + 1, len(self._above)):
            above = self._above[group]
            near[group] = near[group] or (above >= anchor and near[above])
        return [not is_near for is_near in near]

    def _overtaken(self, leaf: int) -> set[int]:
        """Return the rows of answers that a second client, resuming meanwhile, did not see."""
        parents = self._rows[::4]
        path: set[int] = set()
        row = leaf
        while row != _NONE:
            path.add(row)
            row = parents[row]
        forks = {parents[filler]: filler for filler in self._fillers if filler in path}
        gone: set[int] = set()
        for row, parent in enumerate(parents):
            # An answer before the filler was there to be seen, and was delivered.
            beside = self._kinds[row] == ANSWER and row > forks.get(parent, row)
            if beside or (parent != _NONE and parent in gone):
                gone.add(row)
        return gone


def _comes_back(parents: array[int], start: int) -> bool:
    seen = {start}
    row = parents[start]
    while row != _NONE:
        if row == start:
            return True
        if row in seen:
            return False
        seen.add(row)
        row = parents[row]
    return False
