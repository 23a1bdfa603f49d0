"""A session as it stands in some folder: what somebody needs to know who goes on with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.claude import cards, store
from agentsdir.adapters.claude.detection import first_rows
from agentsdir.adapters.claude.paths import munge
from agentsdir.adapters.claude.placing import UUID, role_of
from agentsdir.adapters.claude.shapes import SYNTHETIC
from agentsdir.adapters.contract import Adoptable, NativeFile
from agentsdir.formats.errors import Invalid
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TAIL = 256 * 1024


def adoptable(main: Path) -> Adoptable:
    """Return the session whose main transcript is at `main`, with its side folder.

    Raises `Invalid` when neither its name nor its rows say which session it is, and `OSError`.
    """
    source = Source(str(main), path=main)
    rows = first_rows(source.head)
    native_id = native_id_of(main)
    if not UUID.fullmatch(native_id):
        raise Invalid(
            f"{main} does not say which session it is: {native_id!r} is no id",
            kind="bad-native-id",
        )
    cwd = _first(rows, "cwd")
    in_store = main.parent.parent.name == store.PROJECTS
    folder = f"{store.PROJECTS}/{main.parent.name if in_store else munge(cwd)}"
    try:
        card = cards.read_card(main)
    except OSError:  # a title is all that is missing then
        card = None
    return Adoptable(
        id=native_id,
        cwd=cwd,
        model=_model(main),
        title=card.title if card else "",
        files=tuple(_files(main, folder, native_id)),
    )


def native_id_of(main: Path) -> str:
    """Return which session a main transcript is; empty when it says none.

    The file's name says it: that is what the client goes by. One that was renamed is what its rows
    say.
    """
    if UUID.fullmatch(main.stem):
        return main.stem
    return _first(first_rows(Source(str(main), path=main).head), "sessionId")


def _first(rows: list[dict[str, Any]], name: str) -> str:
    return next((row[name] for row in rows if isinstance(row.get(name), str)), "")


def _files(main: Path, folder: str, native_id: str) -> Iterator[NativeFile]:
    yield NativeFile(f"{folder}/{native_id}.jsonl", "main", Source(str(main), path=main))
    for path in store.beside_files(main):
        if path.parent == main.parent:
            inner: tuple[str, ...] = (path.name,)
        else:
            inner = (native_id, *path.relative_to(main.with_suffix("")).parts)
        yield NativeFile("/".join((folder, *inner)), role_of(inner), Source(str(path), path=path))


def _model(main: Path) -> str:
    """Return the model that answered last, from the end of the file."""
    with main.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL))
        lines = stream.read().split(b"\n")
    for line in reversed(lines):
        if b'"model"' in line:
            try:
                model = orjson.loads(line)["message"]["model"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue
            if isinstance(model, str) and model != SYNTHETIC:
                return model
    return ""
