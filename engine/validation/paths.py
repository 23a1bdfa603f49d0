"""`validate`: which files there are below a path, and what each must be (SPEC.md, "Damage").

Content never raises: whatever is wrong with it is a `Problem`. Memory is bounded by a line, or by
a document.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.engine.validation.agents import AgentCheck, Tally, check_entry
from agentsdir.engine.validation.derived import read_document
from agentsdir.engine.validation.indexes import INDEXES, check_indexes
from agentsdir.engine.validation.logs import LogCheck
from agentsdir.engine.validation.problems import Problem
from agentsdir.engine.validation.values import (
    NOTHING,
    Piece,
    breaches,
    decode,
    kind_of_document,
    kind_of_line,
)
from agentsdir.formats.directory import ids
from agentsdir.formats.directory.layout import FORMAT, TEMPORARY, VERSION, AgentPaths, Layout
from agentsdir.formats.directory.settings import read_settings
from agentsdir.formats.errors import Invalid, UnsafePath
from agentsdir.formats.reading.lines import LINE_CAP, read_lines
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

__all__ = ["Tally", "validate", "validate_path", "validate_source"]

# The files of the format that are told by name; events.jsonl is one, and has a check of its own.
NAMES = {
    "agentsdir.json": "agentsdir",
    "descriptor.json": "descriptor",
    "session.json": "session",
    "state.json": "state",
    "manifest.json": "manifest",
    "history.jsonl": "history-entry",
}
LOG = "events.jsonl"
SUFFIXES = (".json", ".jsonl")
_SNIFFED = 20  # lines in which a stream of records must show one


class NothingToValidate(Invalid):
    """A path holds nothing that this format describes."""

    kind = "nothing-to-validate"


def validate(paths: Iterable[Path], tally: Tally | None = None) -> Iterator[Problem]:
    """Yield the problems of everything below each of `paths`.

    Raises `NothingToValidate` for a path that holds nothing of this format.
    """
    for path in paths:
        yield from validate_path(path, str(path), tally or Tally())


def validate_path(
    path: Path, name: str, tally: Tally, *, kind: str = "", modes: bool = False
) -> Iterator[Problem]:
    """Yield the problems of an agents directory, an agent's folder, a file, or a folder of these.

    Args:
        name: what problems call `path`.
        kind: the schema to hold a file to, instead of the one that its name or content tells.
        modes: whether to report permissions for other users; a copy, such as a checkout, has them.

    Raises `NothingToValidate` when there is nothing of this format.
    """
    if not path.is_dir():
        yield from _file(path, name, tally, kind)
    elif _is_root(path):
        yield from _root(Layout(path), name, tally, modes=modes)
    elif _is_agent(path):
        yield from _agent(path, path.resolve().name, name, tally, modes=modes)
    else:
        found = yield from _folder(path, name, tally, modes=modes)
        if not found:
            raise NothingToValidate(
                f"{name} holds no agents directory, no agent and no file of this format"
            )


def validate_source(source: Source, tally: Tally, *, kind: str = "") -> Iterator[Problem]:
    """Yield the problems of bytes without a name that says what they are.

    JSON Lines if the first line is JSON by itself, else one document. Raises `NothingToValidate`.
    """
    with source.open() as stream:
        first = next((line for line in read_lines(stream) if _is_said(line.data)), None)
    if first is not None and (first.data is None or _is_json(first.data)):
        yield from _lines(source, tally, kind)
    else:
        with source.open() as stream:
            data = stream.read(LINE_CAP + 1)
        yield from _document(Piece(source.name, 1, 0, data), tally, kind)


def _is_root(path: Path) -> bool:
    return (path / "agentsdir.json").is_file() or (path / "agents").is_dir()


def _is_agent(path: Path) -> bool:
    return (path / LOG).exists() or (path / "descriptor.json").is_file()


def _root(layout: Layout, name: str, tally: Tally, *, modes: bool) -> Iterator[Problem]:
    known = True
    yield from check_entry(layout.root, name, modes=modes, folder=True)
    for entry in _sorted(layout.root):
        path, inside = Path(entry.path), f"{name}/{entry.name}"
        if entry.name.startswith(TEMPORARY):
            yield Problem("leftover", inside, "a writer that died left it; nothing needs it")
        elif entry.name in ("agents", "archive", *INDEXES):
            yield from check_entry(path, inside, modes=modes, folder=True)
        elif entry.name in ("agentsdir.json", "settings.toml", ".lock", ".gitignore"):
            yield from check_entry(path, inside, modes=modes, folder=False)
    try:
        problems: list[Problem] = []
        piece = read_document(layout.document, f"{name}/agentsdir.json", problems)
    except FileNotFoundError:
        yield Problem(
            "missing", f"{name}/agentsdir.json", "it says that this is an agents directory"
        )
    else:
        if piece is not None:
            tally.files += 1
            tally.records += 1
            value = decode(piece, problems, document=True)
            problems += _version(value, piece)
            known = not any(problem.id == "unknown-version" for problem in problems)
        yield from problems
    yield from _settings(layout, f"{name}/settings.toml", tally)
    for folder in (layout.agents, layout.archive):
        if known and not folder.is_symlink() and folder.is_dir():
            yield from _agents(folder, f"{name}/{folder.name}", tally, modes=modes)
    if known:
        yield from check_indexes(layout, name, tally, modes=modes)


def _version(value: Any, piece: Piece) -> Iterator[Problem]:
    if value is NOTHING:
        return
    yield from breaches("agentsdir", value, piece)
    if not isinstance(value, dict):
        return
    if value.get("format") == FORMAT and value.get("version") != VERSION:
        reason = f"this program knows version {VERSION}, and looks no further"
        yield piece.problem("unknown-version", reason, "/version")
    features = value.get("features")
    for index, feature in enumerate(features if isinstance(features, list) else ()):
        reason = f"this program does not know {feature!r}, and would not write here"
        yield piece.problem("unknown-feature", reason, f"/features/{index}")


def _settings(layout: Layout, name: str, tally: Tally) -> Iterator[Problem]:
    if not layout.settings.exists():
        return
    tally.files += 1
    try:
        said = read_settings(layout).says_unknown
    except UnsafePath:
        return  # said of the entry already
    except Invalid as error:
        yield Problem(error.kind, name, error.message)
    else:
        if said:
            yield Problem("unknown-setting", name, f"it {said}")


def _agents(folder: Path, name: str, tally: Tally, *, modes: bool) -> Iterator[Problem]:
    for entry in _sorted(folder):
        inside = f"{name}/{entry.name}"
        if entry.name.startswith(TEMPORARY):
            yield Problem("leftover", inside, "a writer that died left it; nothing needs it")
        elif not ids.is_agent_id(entry.name):
            yield Problem("foreign-entry", inside, "its name is no agent id")
        elif not entry.is_dir(follow_symlinks=False):
            yield from check_entry(Path(entry.path), inside, modes=modes, folder=True)
        else:
            yield from _agent(Path(entry.path), entry.name, inside, tally, modes=modes)


def _agent(path: Path, agent_id: str, name: str, tally: Tally, *, modes: bool) -> Iterator[Problem]:
    try:
        yield from AgentCheck(AgentPaths(path, agent_id), name, tally, modes=modes).run()
    except FileNotFoundError:
        return  # removed while we looked
    except OSError as error:  # one agent that cannot be read does not hide the others
        yield Problem("unreadable", name, str(error.strerror))


def _folder(path: Path, name: str, tally: Tally, *, modes: bool) -> Generator[Problem, None, bool]:
    """Check what a folder of other things holds of this format; return whether there was any.

    Links are not followed, and files that are none of ours are passed over.
    """
    found = False
    # A list of open folders, since whoever nests them deeper than Python calls is hostile.
    folders = [(name, iter(_sorted(path)))]
    while folders:
        above, entries = folders[-1]
        entry = next(entries, None)
        if entry is None:
            folders.pop()
            continue
        child, inside = Path(entry.path), f"{above}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if (child / "agentsdir.json").is_file() or _is_agent(child):
                yield from validate_path(child, inside, tally, modes=modes)
                found = True
            else:
                folders.append((inside, iter(_sorted(child))))
        elif entry.is_file(follow_symlinks=False) and entry.name.endswith(SUFFIXES):
            try:
                yield from _file(child, inside, tally, "")
                found = True
            except NothingToValidate:
                continue
    return found


def _file(path: Path, name: str, tally: Tally, kind: str) -> Iterator[Problem]:
    path = path.resolve()  # the person who named a link meant what it leads to
    if not path.is_file():
        yield Problem("unsafe-path", name, "it is no regular file")
        return
    if path.name == LOG and not kind:
        log = LogCheck(path, name, _never)
        yield from log.run()
        tally.files += 1
        tally.records += log.records
        return
    kind = kind or NAMES.get(path.name, "")
    if path.suffix == ".jsonl":
        yield from _lines(Source(name, path=path), tally, kind)
    elif path.suffix == ".json":
        problems: list[Problem] = []
        piece = read_document(path, name, problems)
        yield from problems
        if piece is not None:
            yield from _document(piece, tally, kind)
    else:
        yield from validate_source(Source(name, path=path), tally, kind=kind)


def _never() -> bool:
    return False


def _document(piece: Piece, tally: Tally, kind: str) -> Iterator[Problem]:
    problems: list[Problem] = []
    value = decode(piece, problems, document=True)
    kind = kind or kind_of_document(value) or ""
    if not kind:
        raise NothingToValidate(
            f"{piece.file} is no document of this format"
            if value is not NOTHING
            else f"{piece.file} is no JSON: {problems[0].reason}",
            hint="--kind KIND says what it is meant to be",
        )
    tally.files += 1
    yield from problems
    if value is not NOTHING:
        tally.records += 1
        yield from breaches(kind, value, piece)


def _lines(source: Source, tally: Tally, kind: str) -> Iterator[Problem]:
    sniffed = set() if kind else _sniff(source)
    if not kind and not sniffed:
        raise NothingToValidate(
            f"{source.name} holds no record, block or event of this format",
            hint="`agentsdir parse` reads transcripts; --kind KIND says what lines are meant to be",
        )
    tally.files += 1
    if "script-line" in sniffed:
        kind = "script-line"  # its stream events may lack what the player puts in
    with source.open() as stream:
        for number, offset, length, data in read_lines(stream):
            if data is None:
                reason = f"the line has {length} bytes, the limit is {LINE_CAP}"
                yield Problem("oversize", source.name, reason, number, offset)
            elif _is_said(data):
                yield from _line(Piece(source.name, number, offset, data), tally, kind)


def _line(piece: Piece, tally: Tally, kind: str) -> Iterator[Problem]:
    problems: list[Problem] = []
    value = decode(piece, problems, document=False)
    yield from problems
    if value is NOTHING:
        return
    tally.records += 1
    kind = kind or kind_of_line(value) or kind_of_document(value) or ""
    if kind:
        yield from breaches(kind, value, piece)
    else:
        yield piece.problem("unknown-kind", "it is no record, block or event of this format")


def _sniff(source: Source) -> set[str]:
    """Return the kinds of the first lines, as far as they are of this format."""
    kinds = set()
    with source.open() as stream:
        for line in islice(read_lines(stream), _SNIFFED):
            try:
                value = orjson.loads(line.data or b"")
            except orjson.JSONDecodeError:
                continue
            kinds.add(kind_of_line(value) or kind_of_document(value) or "")
    return kinds - {""}


def _is_said(data: bytes | None) -> bool:
    return data is None or not data.isspace()


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def _sorted(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
