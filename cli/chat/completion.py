"""What Tab completes: commands, agents behind them, and `@files` in a prompt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

from agentsdir.cli.output import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

MAX_FILES = 200
"""Entries of one folder that are offered."""
_FILE = re.compile(r"(?:^|\s)@(\S*)$")


class LineCompleter(Completer):
    """Completes the line that is typed.

    Args:
        commands: what each is for, by name.
        words: returns what may follow a command, and what each is.
        folder: where `@files` are looked for.
    """

    def __init__(
        self, commands: Mapping[str, str], words: Callable[[str], Mapping[str, str]], folder: Path
    ) -> None:
        self._commands = commands
        self._words = words
        self._folder = folder

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield what the text before the cursor may become."""
        del complete_event
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text and not text.startswith("//"):
            yield from self._command(text)
        elif found := _FILE.search(text[-4096:]):
            yield from self._files(found[1])

    def _command(self, text: str) -> Iterator[Completion]:
        name, space, rest = text[1:].partition(" ")
        if not space:
            yield from (
                Completion(f"{one} ", -len(name), display=f"/{one}", display_meta=said)
                for one, said in self._commands.items()
                if one.startswith(name)
            )
            return
        word = rest.rpartition(" ")[2]
        yield from (
            Completion(one, -len(word), display=one, display_meta=said)
            for one, said in self._words(name).items()
            if one.startswith(word) and one != word
        )

    def _files(self, typed: str) -> Iterator[Completion]:
        folder, _, start = typed.rpartition("/")
        base = self._folder / folder if folder else self._folder
        if typed.startswith("/") and not folder:
            base = base.__class__("/")
        try:
            entries = sorted(base.iterdir())
        except OSError:
            return
        shown = 0
        for entry in entries:
            name = entry.name
            if not name.startswith(start) or (name.startswith(".") and not start):
                continue
            # A name that would reorder or break the line is not offered.
            if escape_controls(name) != name or re.search(r"\s", name) or shown == MAX_FILES:
                continue
            shown += 1
            end = "/" if entry.is_dir() else ""
            yield Completion(name + end, -len(start), display=name + end)
