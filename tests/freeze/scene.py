"""Plays a scene: a file of command lines, each followed by all that it did.

Of a scene's lines these are played; everything else is what they printed and wrote::

    # a remark
    $ agentsdir send demo hello

A line may be a pipe (``printf 'a\\n' | agentsdir parse -``), read and write files (``< FILE``,
``> FILE``) and set variables before a command (``NAME=value agentsdir …``). ``@tty`` before a
command makes a terminal of its output, ``@process`` runs it in a process of its own. Beside
``agentsdir`` there are ``printf`` and ``cat``, and what prepares and damages files: `_TOOLS`.

Below a command stand its standard output, indented; its standard error behind ``!``; its exit code
behind ``?`` where it is not 0; and each file that it made (``+``), changed (``~``) or removed
(``-``), with size, hash and unusual mode. What was appended to a log is shown in full.

Scenes play at a fixed place, because paths stand in logs, and logs are chained by hashes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import program

PLACE = Path("/tmp/agentsdir-freeze")
FIXTURES = Path(__file__).parents[2] / "fixtures"
SCENES = Path(__file__).with_name("scenes")
INDEX = "index.jsonl"
"""Left out: it has an inode and a time of the machine."""

_SHOWN = 4000
"""Bytes of an output up to which it is shown in full."""
_LINE = 400
"""Characters up to which a line of a log is shown: the hash of the file holds the rest."""
_LOG = "events.jsonl"
_A_TIME = 1_767_323_045  # 2026-01-02T03:04:05Z, of every file that a scene is given


class Entry(NamedTuple):
    """A file, a folder or a link."""

    kind: str
    mode: int
    data: bytes


Tree = dict[str, Entry]


def hash_of(data: bytes) -> str:
    """Return as much of a SHA-256 as tells two outputs apart."""
    return hashlib.sha256(data).hexdigest()[:16]


@contextmanager
def place() -> Iterator[Path]:
    """Make the place of scenes empty; another run of these tests waits until it is free."""
    PLACE.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(PLACE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    umask = os.umask(0o022)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _empty()  # a run that was killed leaves things
        for name in ("home", "work"):
            (PLACE / name).mkdir()
        yield PLACE
        _empty()
    finally:
        os.umask(umask)
        os.close(descriptor)


def _empty() -> None:
    for path in PLACE.iterdir():
        if path.is_dir() and not path.is_symlink():
            _make_removable(path)
            shutil.rmtree(path)
        else:
            path.unlink()


def _make_removable(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        Path(path).chmod(0o700)


def tree() -> Tree:
    """Return every entry at the place."""
    found: Tree = {}
    for folder, folders, files in os.walk(PLACE):
        for name in (*folders, *files):
            path = Path(folder, name)
            if name == INDEX:
                continue
            mode = path.lstat().st_mode & 0o7777
            if path.is_symlink():
                entry = Entry("link", 0o777, bytes(path.readlink()))
            elif path.is_dir():
                entry = Entry("folder", mode, b"")
            else:
                entry = Entry("file", mode, path.read_bytes())
            if name == "stamps.json":
                continue  # it has inodes and times of this machine
            found[str(path.relative_to(PLACE))] = entry
    return found


def played(text: str) -> str:
    """Play the command lines of a scene; return the scene as it came out."""
    lines = [line for line in text.splitlines() if line.startswith(("$ ", "#")) or not line]
    with place():
        scene = _Scene()
        result = []
        for line in lines:
            try:
                result += [line, *scene.play(line)]
            except (OSError, ValueError) as error:
                error.add_note("\n".join([*result[-40:], line]))
                raise
    while result and not result[-1]:
        result.pop()
    return "\n".join(_without_gaps(result)) + "\n"


def _without_gaps(lines: list[str]) -> Iterator[str]:
    for before, line in zip(["", *lines], lines, strict=False):
        if line or before:
            yield line


class _Scene:
    def __init__(self) -> None:
        self._number = 0
        self._code = 0

    def play(self, line: str) -> list[str]:
        if not line.startswith("$ "):
            return []
        stages = _stages(shlex.split(line[2:].replace("@/", f"{PLACE}/")))
        if stages[0][0] in _TOOLS:
            (words,) = stages
            _TOOLS[words[0]](*words[1:])
            return []
        before = tree()
        result: list[str] = []
        data = b""
        for position, words in enumerate(stages):
            data, errors, code, shown = self._stage(words, data, piped=position > 0)
            if position == len(stages) - 1 and shown:
                result += _indented(data)
            result += [f"! {text}" for text in _text(errors)]
            if code:
                result.append(f"? {code}")
        return [*result, *_changes(before, tree())]

    def _stage(
        self, words: list[str], stdin: bytes, *, piped: bool
    ) -> tuple[bytes, bytes, int, bool]:
        words, target = _redirected(words, ">")
        words, source = _redirected(words, "<")
        if source is not None:
            stdin = _path(source).read_bytes()
            piped = True
        variables = {"AGENTSDIR_ROOT": str(PLACE / "root"), "HOME": str(PLACE / "home")}
        variables["AGENTSDIR_PROVIDER"] = "echo"
        tty = process = False
        while words[0].startswith("@") or "=" in words[0]:
            word = words.pop(0)
            tty |= word == "@tty"
            process |= word == "@process"
            name, equals, value = word.partition("=")
            if equals:
                variables[name] = value
        match words:
            case ["printf", text]:
                done = program.Done(0, _escaped(text), b"")
            case ["cat", *names]:
                done = program.Done(0, b"".join(_path(name).read_bytes() for name in names), b"")
            case ["agentsdir", *arguments]:
                self._number += 1
                if process:
                    done = _process(arguments, variables, stdin)
                else:
                    done = program.command(
                        arguments,
                        self._number,
                        cwd=PLACE / "work",
                        home=PLACE / "home",
                        variables={k: v for k, v in variables.items() if v},
                        stdin=stdin if piped else None,
                        tty=tty,
                    )
            case _:
                raise ValueError(f"a scene cannot play {shlex.join(words)}")
        if target is not None:
            _path(target).write_bytes(done.out)
        return done.out, done.err, done.code, target is None


def _process(arguments: list[str], variables: dict[str, str], stdin: bytes) -> program.Done:
    environment = {**os.environ, **variables, **program.WIDTH}
    done = subprocess.run(
        [*program.PROCESS, *arguments],
        input=stdin,
        capture_output=True,
        env=environment,
        cwd=PLACE / "work",
        check=False,
        timeout=60,
    )
    return program.Done(done.returncode, done.stdout, done.stderr)


def _stages(words: list[str]) -> list[list[str]]:
    stages: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            stages.append([])
        else:
            stages[-1].append(word)
    return stages


def _redirected(words: list[str], sign: str) -> tuple[list[str], str | None]:
    if sign not in words:
        return words, None
    at = words.index(sign)
    return [*words[:at], *words[at + 2 :]], words[at + 1]


def _indented(data: bytes) -> list[str]:
    """Return an output as a scene shows it; a long one by its beginning and its hash."""
    if len(data) <= _SHOWN:
        return [f"  {line}".rstrip() if not line.strip() else f"  {line}" for line in _text(data)]
    begin = [f"  {_short(line)}" for line in _text(data)[:3]]
    return [*begin, f"  … {_count(data)} lines, {len(data)} bytes, {hash_of(data)}"]


def _text(data: bytes) -> list[str]:
    """Return lines; where the last one has no end, that is said."""
    text = data.decode(errors="backslashreplace").replace("\r", "\\r").replace("\0", "\\0")
    *lines, last = text.split("\n")
    return [*lines, f"{last}⏎"] if last else lines


def _count(data: bytes) -> int:
    return data.count(b"\n")


def _changes(before: Tree, after: Tree) -> list[str]:
    result = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if new is None:
            result.append(f"- {path}")
            continue
        result.append(" ".join([("+", "~")[old is not None], path, *_about(path, new)]))
        if path.endswith(_LOG):
            result += _appended(old.data if old else b"", new.data)
    return result


def _about(path: str, entry: Entry) -> list[str]:
    private = path == "root" or path.startswith("root/")
    usual = {"file": (0o644, 0o600), "folder": (0o755, 0o700), "link": (0o777, 0o777)}[entry.kind]
    mode = [] if entry.mode == usual[private] else [f"mode={entry.mode:o}"]
    match entry.kind:
        case "folder":
            return ["/", *mode]
        case "link":
            return ["->", entry.data.decode(errors="backslashreplace")]
        case _:
            return [str(len(entry.data)), hash_of(entry.data), *mode]


def _appended(old: bytes, new: bytes) -> list[str]:
    """Return what a log got: of each record sequence number, time, event and data."""
    if not new.startswith(old):
        return ["    (not only appended to)"]
    return [f"    {_short(_record(line))}" for line in _text(new[len(old) :])]


def _record(line: str) -> str:
    try:
        record = json.loads(line)
        said = json.dumps(record["data"], ensure_ascii=False, separators=(",", ":"))
        return f"{record['seq']} {record['ts'][11:23]} {record['event']} {said}"
    except (ValueError, TypeError, KeyError):
        return line


def _short(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[:_LINE]}…"


def _path(name: str) -> Path:
    """Return the path that a scene means, from the working directory; `*` stands for one thing."""
    if name == "fixtures" or name.startswith("fixtures/"):
        return FIXTURES.parent / name
    work = PLACE / "work"
    if "*" not in name:
        return work / name
    matches = list(PLACE.glob(name[3:]) if name.startswith("../") else work.glob(name))
    if len(matches) != 1:
        raise ValueError(f"{name} stands for {len(matches)} paths")
    return matches[0]


def _escaped(text: str) -> bytes:
    return text.encode().decode("unicode_escape").encode("latin-1")


def _copy(source: str, target: str) -> None:
    found, to = _path(source), _path(target)
    if found.is_dir():
        shutil.copytree(found, to, symlinks=True, dirs_exist_ok=True)
    else:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(found, to)
    for path in [to, *to.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)
            os.utime(path, (_A_TIME, _A_TIME))


def _cut(name: str, size: str) -> None:
    path = _path(name)
    data = path.read_bytes()
    path.write_bytes(data[: int(size)])


def _edit(name: str, old: str, new: str) -> None:
    path = _path(name)
    data = path.read_bytes()
    if _escaped(old) not in data:
        raise ValueError(f"{name} holds no {old}")
    path.write_bytes(data.replace(_escaped(old), _escaped(new), 1))


def _write(name: str, text: str, mode: str = "600") -> None:
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_escaped(text))
    path.chmod(int(mode, 8))
    os.utime(path, (_A_TIME, _A_TIME))


def _append(name: str, text: str) -> None:
    with _path(name).open("ab") as stream:
        stream.write(_escaped(text))


def _head(name: str, count: str) -> None:
    path = _path(name)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: int(count)]))


def _remove(name: str) -> None:
    path = _path(name)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


_TOOLS: dict[str, Callable[..., None]] = {
    "append": _append,
    "chmod": lambda mode, name: _path(name).chmod(int(mode, 8)),
    "copy": _copy,
    "cut": _cut,
    "edit": _edit,
    "head": _head,
    "link": lambda name, target: _path(name).symlink_to(target),
    "mkdir": lambda name: _path(name).mkdir(parents=True),
    "remove": _remove,
    "write": _write,
}
