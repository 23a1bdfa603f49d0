"""The chain of a main thread: which rows a rewind replaced.

See docs/clients/claude.md, "Branches".

Rows name their parent, but the result is no chain: parallel calls fork it, results close forks
in any order, notices hang where they happened. None of that replaces anything. What does is a
second prompt, or command, beside an earlier one. So each row belongs to the prompt it descends
from (its group), and a row is superseded exactly when its prompt is off the way to the leaf. Rows
without a rival prompt therefore always stay, and so does what was live when a compaction that is
live itself was made.
"""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from itertools import starmap
from operator import lt
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats.findings import Finding
from agentsdir.formats.ids import stand_in
from agentsdir.formats.jsontext import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agentsdir.formats.rows import Row

# The role of a row in the tree. A filler is the "No response requested." that a client writes
# when it resumes a session in which it sees an unanswered prompt.
# A command opens a group as a prompt does. A NOTED row is an event around the conversation: no
# client continues from it, so it is never the leaf.
PLAIN, PROMPT, FILLER, ANSWER, ASIDE, COMMAND, NOTED = range(7)
_OPENING = (PROMPT, COMMAND)
_NONE = -1


class _MissingParent(NamedTuple):
    """A row whose parent was not read before it."""

    row: int
    parent: str
    line: int
    offset: int
    length: int


class Tree:
    """Rows of one file by uuid, and the branches of its main thread.

    A row costs a dictionary entry and six numbers, whatever its size.

    Args:
        stand_in: returns the number that stands for a uuid.
    """

    def __init__(self, stand_in: Callable[[str], int] = stand_in) -> None:
        self._stand_in = stand_in
        # The number of each row by its uuid's stand-in.
        self.numbers: dict[int, int] = {}
        # Per row: its kind, its parent and its group, its first block and how many it has.
        self._kinds = bytearray()
        self._parents = array("i")
        self._groups = array("i")
        self._firsts = array("i")
        self._counts = array("i")
        # Per group: the group it hangs from, and the row of its prompt.
        self._above: list[int] = []
        self._prompts: list[int] = []
        self._last_main = self._newest = _NONE
        # Groups of prompts that were taken in when the person interrupted a call.
        self._absorbed: list[int] = []
        # By boundary of a compaction: the group in which the conversation stood before it.
        self._compacted: list[tuple[int, int]] = []
        # Prompts that say they have no parent, with the group before them in the file.
        self._roots: list[tuple[int, int, str]] = []
        self._loose = False
        self._fillers: list[int] = []
        self._missing_parents: list[_MissingParent] = []
        self._leaf: tuple[str, int] | None = None
        self._replaced: list[str] = []
        self._broken = range(0)
        # Blocks that stand below a row without being its own: the row, the first, how many.
        self._attached: list[tuple[int, int, int]] = []

    @property
    def newest(self) -> int:
        """The number of the newest row of the main thread, -1 before any."""
        return self._last_main

    def attach(self, row: int, first: int, count: int) -> None:
        """Let blocks share the branch of a row, by its number; below -1 nothing is replaced."""
        if row != _NONE and count:
            self._attached.append((row, first, count))

    def number_of(self, uuid: str) -> int | None:
        """Return the number of a row, None for one that was not read."""
        return self.numbers.get(self._stand_in(uuid))

    def add_aside(self, key: int | None, first: int, count: int) -> None:
        """Register a row of another thread, so that its repetition is recognised."""
        if key is not None:
            self.numbers[key] = len(self._kinds)
        self._kinds.append(ASIDE)
        self._parents.append(_NONE)
        self._groups.append(_NONE)
        self._firsts.append(first)
        self._counts.append(count)

    def blocks_of(self, row: int) -> range:
        """Return the handles of the blocks of a row, by its number."""
        first = self._firsts[row]
        return range(first, first + self._counts[row])

    def begin_again(self, row: int) -> None:
        """Take the repetition of a row of a subagent's file.

        A subagent that is sent to the background is started again from its prompt, the first row:
        what it did before is a broken attempt.
        """
        if row == 0:
            self._broken = range(1, len(self._kinds))

    def add(
        self, key: int | None, row: Row, kind: int, session: str, first: int, count: int
    ) -> None:
        """Place a main-thread row that gave `count` blocks from handle `first` on.

        `key` stands for its uuid.
        """
        value, kinds = row.value, self._kinds
        number = len(kinds)
        named = value.get("parentUuid")
        bridge = self._last_main
        parent = bridge
        if isinstance(named, str):
            known = self.numbers.get(self._stand_in(named))
            if known is None:
                place = _MissingParent(number, named, row.line, row.offset, row.length)
                self._missing_parents.append(place)
            elif kinds[known] != ASIDE:
                parent = known
        elif bridge != _NONE and "parentUuid" in value:
            # A compaction starts a new chain below the old one; anything else that has no
            # parent although a chain exists shows that this writer keeps none.
            logical = value.get("logicalParentUuid")
            if isinstance(logical, str):
                parent = self.numbers.get(self._stand_in(logical), bridge)
            elif kind not in _OPENING and value.get("subtype") != "compact_boundary":
                self._loose = True
        group = self._groups[parent] if parent != _NONE else _NONE
        if kind == ANSWER:
            pass  # as most are
        elif kind == PLAIN:
            if self._hangs_beside_prompt(parent):
                # The result of a call that was interrupted for a prompt that waited: the client
                # had sent that prompt, and its answer hangs from the result.
                self._absorbed.append(len(self._prompts) - 1)
        elif kind in _OPENING:
            if named is None and "parentUuid" in value:
                self._roots.append((len(self._prompts), group, session))
                group = _NONE
            self._above.append(group)
            self._prompts.append(number)
            group = len(self._prompts) - 1
        elif kind == FILLER:
            self._fillers.append(number)
        elif kind == NOTED and value.get("subtype") == "compact_boundary" and bridge != _NONE:
            self._compacted.append((group, self._groups[bridge]))
        self._last_main = number
        if kind != NOTED:
            self._newest = number
        if key is not None:
            self.numbers[key] = number
        kinds.append(kind)
        self._parents.append(parent)
        self._groups.append(group)
        self._firsts.append(first)
        self._counts.append(count)

    def _hangs_beside_prompt(self, parent: int) -> bool:
        newest = self._newest
        return (
            newest != _NONE
            and parent != _NONE
            and self._kinds[newest] == PROMPT
            and self._parents[newest] == parent
        )

    def name_leaf(self, uuid: str) -> None:
        """Take a `last-prompt` or `summary` row, which says where the conversation stood."""
        self._leaf = (uuid, len(self._kinds))

    def replace(self, uuids: Iterable[str]) -> None:
        """Take the rows that a line says it replaces; stdout only, a file loses such rows."""
        self._replaced += uuids

    def superseded(self) -> Iterator[tuple[int, str]]:
        """Yield the handle of each block that the client left, and why: the first reason counts."""
        for uuid in self._replaced:
            row = self.number_of(uuid)
            if row is not None:
                yield from self._blocks(row, "replaced")
        for row in self._broken:
            yield from self._blocks(row, "broken-attempt")
        self._settle_roots()
        leaf = self._leaf_row()
        if leaf == _NONE:
            return
        off = self._replaced_groups(self._groups[leaf])
        gone: set[int] = set()
        if self._fillers:
            path = self._path(leaf)
            gone = self._overtaken(path)
            self._keep_fallen(off, path)
        if not gone and not any(off):
            return
        for row, group in enumerate(self._groups):
            if group != _NONE and off[group]:
                yield from self._blocks(row, "rewind")
            elif row in gone:
                yield from self._blocks(row, "overtaken")
        for row, first, count in self._attached:
            group = self._groups[row]
            if (group != _NONE and off[group]) or row in gone:
                reason = "overtaken" if row in gone else "rewind"
                yield from ((handle, reason) for handle in range(first, first + count))

    def _blocks(self, row: int, reason: str) -> Iterator[tuple[int, str]]:
        return ((handle, reason) for handle in self.blocks_of(row))

    def findings(self, file: str) -> Iterator[Finding]:
        """Yield what is wrong with the parents that rows name."""
        ahead: list[_MissingParent] = []
        for entry in self._missing_parents:
            if self.number_of(entry.parent) is not None:
                ahead.append(entry)
                continue
            message = f"parent {entry.parent} is not in the file; joined to the row before"
            yield Finding("missing-parent", file, message, entry.line, entry.offset, entry.length)
        # Only a parent further down can close a circle.
        parents = self._parents[:]
        for entry in ahead:
            parents[entry.row] = self.numbers[self._stand_in(entry.parent)]
        for entry in ahead:
            if _is_cycle(parents, entry.row):
                message = f"the row is its own ancestor through {entry.parent}"
                yield Finding("parent-cycle", file, message, entry.line, entry.offset, entry.length)

    def snapshot(self) -> dict[str, Any]:
        """Return as JSON what later rows need of these: all but their blocks and their damage."""
        return {
            "keys": packed("q", self.numbers),
            "rows": packed("i", self.numbers.values()),
            "kinds": b64encode(self._kinds).decode(),
            "parents": packed("i", self._parents),
            "groups": packed("i", self._groups),
            "above": self._above,
            "prompts": self._prompts,
            "lastMain": self._last_main,
            "newest": self._newest,
            "absorbed": self._absorbed,
            "compacted": self._compacted,
            "roots": self._roots,
            "loose": self._loose,
            "fillers": self._fillers,
            "leaf": self._leaf,
        }

    def resume(self, snapshot: dict[str, Any]) -> None:
        """Take the rows of a snapshot, which have no blocks here.

        Raises `ValueError`, `TypeError` or `KeyError` for what is none: each row and each group
        hangs from an earlier one.
        """
        rows = unpacked("i", snapshot["rows"])
        self.numbers.update(zip(unpacked("q", snapshot["keys"]), rows, strict=True))
        self._kinds += b64decode(snapshot["kinds"], validate=True)
        self._parents, self._groups = (unpacked("i", snapshot[n]) for n in ("parents", "groups"))
        count = len(self._kinds)
        self._firsts, self._counts = array("i", bytes(4 * count)), array("i", bytes(4 * count))
        self._above, self._prompts = snapshot["above"], snapshot["prompts"]
        self._last_main, self._newest = snapshot["lastMain"], snapshot["newest"]
        self._absorbed, self._fillers = snapshot["absorbed"], snapshot["fillers"]
        self._compacted = [(group, before) for group, before in snapshot["compacted"]]
        self._roots = [(group, bridged, session) for group, bridged, session in snapshot["roots"]]
        self._loose = snapshot["loose"]
        if snapshot["leaf"] is not None:
            uuid, seen = snapshot["leaf"]
            self._leaf = str(uuid), int(seen)
        groups = len(self._prompts)
        within = (
            (rows, 0, count),
            (self._kinds, 0, NOTED + 1),
            (self._parents, _NONE, count),
            (self._groups, _NONE, groups),
            (self._above, _NONE, groups),
            (self._prompts, 0, count),
            (self._absorbed, 0, groups),
            (self._fillers, 0, count),
            ((self._last_main, self._newest), _NONE, count),
            ([group for pair in self._compacted for group in pair], _NONE, groups),
            ([group for group, _, _ in self._roots], 0, groups),
        )
        if not (
            all(starmap(_is_within, within))
            and len(self._parents) == len(self._groups) == count
            and len(self._above) == groups
            and all(map(lt, self._parents, range(count)))
            and all(map(lt, self._above, range(groups)))
            and all(bridged < group for group, bridged, _ in self._roots)
        ):
            raise ValueError("no rows of a transcript")

    def _settle_roots(self) -> None:
        """Decide for each prompt without a parent whether it rewound to the very start.

        It did only if the file otherwise keeps its chain, and the first such prompt is of the
        same session; if not, it continues after the row before it.
        """
        for group, bridged, session in self._roots[1:]:
            if self._loose or session != self._roots[0][2]:
                self._above[group] = bridged

    def _leaf_row(self) -> int:
        """Return the row at which, or below which, the conversation stood at the end."""
        if not self._prompts:
            return _NONE
        last = self._prompts[-1]
        if self._leaf is not None:
            leaf = self.number_of(self._leaf[0])
            # A prompt written after the note was made, and after the leaf, is newer than both.
            if leaf is not None and last <= max(leaf, self._leaf[1] - 1):
                return leaf
        # Clients continue from the newest row, unless it came late above the last prompt.
        group, of_newest = len(self._prompts) - 1, self._groups[self._newest]
        while group > of_newest:
            group = self._above[group]
        return last if group == of_newest else self._newest

    def _replaced_groups(self, anchor: int) -> list[bool]:
        """Tell for each group whether it is neither above `anchor`, nor it, nor below it.

        Nor was it live when a compaction was made that is: that is history.
        """
        if anchor == _NONE:
            return [False] * len(self._above)
        near = [False] * len(self._above)
        self._mark_live(near, anchor)
        for group in range(anchor + 1, len(self._above)):
            above = self._above[group]
            near[group] = near[group] or (above >= anchor and near[above])
        for group, before in reversed(self._compacted):
            if group == _NONE or near[group]:
                self._mark_live(near, before)
        for group in self._absorbed:
            near[group] = near[group] or near[self._above[group]]
        return [not is_near for is_near in near]

    def _mark_live(self, near: list[bool], group: int) -> None:
        while group != _NONE and not near[group]:
            near[group] = True
            group = self._above[group]

    def _path(self, leaf: int) -> set[int]:
        parents = self._parents
        path: set[int] = set()
        row = leaf
        while row != _NONE:
            path.add(row)
            row = parents[row]
        return path

    def _keep_fallen(self, off: list[bool], path: set[int]) -> None:
        """Keep commands that fell off the chain: a resuming client hangs its filler above them."""
        forks = {self._parents[filler]: filler for filler in self._fillers if filler in path}
        for group, prompt in enumerate(self._prompts):
            if not off[group] or self._kinds[prompt] != COMMAND:
                continue
            row = prompt
            while row != _NONE and row not in path:
                row = self._parents[row]
            above = self._above[group]
            if prompt < forks.get(row, _NONE) and (above == _NONE or not off[above]):
                off[group] = False

    def _overtaken(self, path: set[int]) -> set[int]:
        """Return the rows of answers that a second client, resuming meanwhile, did not see."""
        parents = self._parents
        forks = {parents[filler]: filler for filler in self._fillers if filler in path}
        gone: set[int] = set()
        for row, parent in enumerate(parents):
            # An answer before the filler was there to be seen, and was delivered.
            beside = self._kinds[row] == ANSWER and row > forks.get(parent, row)
            if beside or (parent != _NONE and parent in gone):
                gone.add(row)
        return gone


def _is_within(numbers: Sequence[int], low: int, high: int) -> bool:
    return not numbers or (min(numbers) >= low and max(numbers) < high)


def _is_cycle(parents: array[int], start: int) -> bool:
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
