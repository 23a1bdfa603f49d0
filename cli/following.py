"""Printing a session while it grows: blocks for programs, a page for people, or all events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from agentsdir.cli.conversation import render
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, note_drifts, print_json, print_text
from agentsdir.formats.diff import BlockBook

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentsdir.cli.environment import Environment
    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.diff import Key
    from agentsdir.formats.findings import Finding

    class Watched(Protocol):
        """A `Follower` or a `Translator`."""

        @property
        def findings(self) -> Sequence[Finding]:
            """What was wrong so far."""


_NOTHING: frozenset[str] = frozenset()
_WHOLE = frozenset({"type"})
# News that change nothing of what a block says: where it stands, and what its message took.
_BESIDE = frozenset({"source", "usage"})


class GrowthPrinter:
    """Prints what each look at a session brought, each touched block once, as it then stands.

    Args:
        events: print every event as a line of JSON, at once.
        plain: print a page for people, else a line of JSON for each block.
    """

    def __init__(self, env: Environment, watched: Watched, *, events: bool, plain: bool) -> None:
        self._env = env
        self._watched = watched
        self._events = events
        self._plain = plain
        self._book = BlockBook()
        # Blocks of this look, and which fields of them were told.
        self._touched: dict[Key, frozenset[str]] = {}
        self._printed: set[Key] = set()
        self._noted: set[str] = set()

    def run(self, events: Iterable[StreamEvent | None]) -> Exit:
        """Print events until there are no more; return the exit code."""
        for event in events:
            if event is None:
                self._flush()
            elif self._events:
                print_json(self._env, event)
            elif self._book.apply(event) is not None:
                key = event["conversationId"], event["blockId"]
                told = _WHOLE if event["type"] == "block_complete" else event["updates"].keys()
                self._touched[key] = self._touched.get(key, _NOTHING) | told
        note_drifts(self._env, self._watched.findings)
        return Exit.PARTIAL if self._noted else Exit.OK

    def _flush(self) -> None:
        replaced = 0
        for key, fields in self._touched.items():
            block = self._book[key]
            known = key in self._printed
            if self._plain:
                page = self._page(block, fields, known=known)
                if not page:
                    replaced += bool(known and block.get("superseded") and "superseded" in fields)
                    continue
                print_text(self._env, page)
            elif not fields <= _BESIDE or not known:
                print_json(self._env, block)
            self._printed.add(key)
        if replaced:
            print_text(self._env, f"-- {replaced} of the blocks above were replaced\n\n")
        self._touched.clear()
        for finding in self._watched.findings:
            # A file that is read again gives the same findings again.
            if finding.is_damage and str(finding) not in self._noted:
                self._noted.add(str(finding))
                note(self._env, str(finding))
        self._env.stdout.flush()

    def _page(self, block: Block, fields: frozenset[str], *, known: bool) -> str:
        """Return a block for people; of one that they have seen, only how a subagent ended."""
        if known and not (block["type"] == "subagent" and "status" in fields):
            return ""
        return render(block)
