"""Files of a working directory, kept with an agent: a manifest, and blobs."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from fnmatch import translate
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats.errors import AgentsdirError, Invalid, NotRecorded, UnsafePath
from agentsdir.formats.source import Source
from agentsdir.formats.store import files
from agentsdir.formats.store.derived import encode_document
from agentsdir.formats.store.layout import (
    TEMPORARY,
    checked_name,
    open_plain,
    read_json,
    read_limited,
)
from agentsdir.formats.store.transcripts import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.formats.store.files import Disk
    from agentsdir.formats.store.layout import AgentPaths


# What a capture of a working directory passes over (docs/moving.md, "Workspace capture").

ALWAYS = (".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".agentsdir")

# What a client runs, or runs others by, when it is started beside it (decision D33).
_MOST = 1024 * 1024
_EXECUTING = (
    ".claude/hooks",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".gemini/settings.json",
    ".mcp.json",
)


def executes(name: str) -> bool:
    """Tell whether a file of a workspace is a client's settings, hooks or servers."""
    parts = f"/{name.lower()}/"
    return any(f"/{one}/" in parts for one in _EXECUTING)


def is_left_out(name: str) -> bool:
    """Tell whether no capture takes a file, so that none is put back: `ALWAYS`, and `executes`."""
    return executes(name) or any(part in ALWAYS for part in name.lower().split("/"))


class _Rule(NamedTuple):
    matches: re.Pattern[str]
    whole: bool
    folders: bool


class Ignored:
    """Names that are always passed over, and the plain patterns of a top-level .gitignore.

    `unknown` are the lines of it that are left out of account: with ``!`` or ``**``.
    """

    def __init__(self, lines: list[str]) -> None:
        self.unknown: list[str] = []
        self._rules: list[_Rule] = []
        for line in lines:
            pattern = line.rstrip()
            if not pattern or pattern.startswith("#"):
                continue
            if pattern.startswith("!") or "**" in pattern or "\\" in pattern:
                self.unknown.append(pattern)
                continue
            bare = pattern.rstrip("/")
            whole = "/" in bare
            matches = re.compile(translate(bare.lstrip("/")).replace(".*", "[^/]*"))
            self._rules.append(_Rule(matches, whole, pattern.endswith("/")))

    def covers(self, name: str, *, is_folder: bool) -> bool:
        """Tell whether the path `name`, relative to the top, is passed over."""
        last = name.rsplit("/", 1)[-1]
        if last in ALWAYS:
            return True
        return any(
            (is_folder or not rule.folders) and rule.matches.match(name if rule.whole else last)
            for rule in self._rules
        )


def read_ignored(folder: Path) -> Ignored:
    """Return what is passed over in a working directory; an odd .gitignore counts as none.

    Raises `Invalid` (kind ``too-large``) for one of over 1 MiB: what it names is not to be kept.
    """
    try:
        text = read_limited(folder / ".gitignore", _MOST).decode(errors="replace")
    except (FileNotFoundError, Invalid) as error:
        if isinstance(error, Invalid) and error.kind == "too-large":
            raise
        text = ""
    return Ignored(text.splitlines())


# Files of a working directory, kept with an agent: a manifest, and blobs by their SHA-256.
#
# docs/moving.md, "Workspace capture" (decision D8). A capture replaces the one before it whole.

MAX_FILES = 50_000
MAX_SIZE = 256 * 1024 * 1024
_CHUNK = 1024 * 1024
_MODES = 0o777
_BLOBS = "blobs"
_MANIFEST = "manifest.json"
_is_digest = re.compile(r"[0-9a-f]{64}").fullmatch


class Captured(NamedTuple):
    """What a capture took: files, their bytes, and what was passed over, with the reason."""

    files: int
    size: int
    sha256: str
    skipped: list[str]


class _Found(NamedTuple):
    name: str
    path: Path
    status: os.stat_result


def capture(paths: AgentPaths, folder: Path, disk: Disk) -> Captured:
    """Keep what stands in a working directory, durably.

    Raises `AgentsdirError` (kind ``workspace-too-large``) before anything is written, `NotRecorded`
    and `Uncertain` for the disk.
    """
    skipped: list[str] = []
    found = list(_walk(folder, read_ignored(folder), skipped))
    skipped += [f"{one.name}: settings that can execute" for one in found if executes(one.name)]
    found = [one for one in found if not executes(one.name)]
    size = sum(one.status.st_size for one in found if stat.S_ISREG(one.status.st_mode))
    if len(found) > MAX_FILES or size > MAX_SIZE:
        raise AgentsdirError(
            f"{folder} holds {len(found)} files of {size} bytes; a capture takes at most "
            f"{MAX_FILES} of {MAX_SIZE}",
            hint="a .gitignore there leaves out what need not move",
            kind="workspace-too-large",
        )
    _check_folders(paths)
    before = _entries(paths)
    files.make_folder(paths.workspace / _BLOBS, disk)
    entries = [entry for one in found if (entry := _keep(paths, one, skipped, disk)) is not None]
    kept = {entry["path"] for entry in entries}
    entries += [{"path": name, "deleted": True} for name in before if name not in kept]
    entries.sort(key=lambda entry: str(entry["path"]))
    data = encode_document({"cwd": str(folder), "files": entries})
    files.replace_file(paths.workspace / _MANIFEST, data, disk)
    _sweep(paths, {entry["sha256"] for entry in entries if "sha256" in entry})
    present = [entry for entry in entries if "deleted" not in entry]
    total = sum(entry.get("size", 0) for entry in present)
    return Captured(len(present), total, sha256(data).hexdigest(), skipped)


def _check_folders(paths: AgentPaths) -> None:
    """Raise `UnsafePath` where a link could have files read, written or removed elsewhere."""
    for folder in (paths.workspace, paths.workspace / _BLOBS):
        if folder.is_symlink():
            raise UnsafePath(f"{folder} is a link, which could lead out of the agent's folder")


def _walk(folder: Path, ignored: Ignored, skipped: list[str]) -> Iterator[_Found]:
    skipped += [f".gitignore: {line!r} is not understood" for line in ignored.unknown]
    passed = ""
    for entry in files.entries(folder):
        name = Path(entry.path).relative_to(folder).as_posix()
        if passed and name.startswith(passed):
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        if ignored.covers(name, is_folder=is_folder):
            passed = f"{name}/"
            continue
        if is_folder:
            if entry.name.startswith(TEMPORARY) or not os.access(entry.path, os.R_OK | os.X_OK):
                skipped.append(f"{name}: a folder that is not looked into")
            elif _is_root(Path(entry.path)):
                passed = f"{name}/"
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # it is gone
            continue
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            yield _Found(name, Path(entry.path), status)
        else:
            skipped.append(f"{name}: neither a file nor a link")


def _is_root(folder: Path) -> bool:
    return (folder / "agentsdir.json").is_file()


def _keep(paths: AgentPaths, one: _Found, skipped: list[str], disk: Disk) -> dict[str, Any] | None:
    try:
        checked_name(one.name)
        one.name.encode()
    except (Invalid, UnicodeEncodeError):
        shown = one.name.encode(errors="backslashreplace").decode()
        skipped.append(f"{shown}: no name that every system takes")
        return None
    if stat.S_ISLNK(one.status.st_mode):
        target = str(one.path.readlink())
        if not _stays_inside(one.name, target):
            skipped.append(f"{one.name}: a link that leads out")
            return None
        return {"path": one.name, "link": target}
    try:
        with os.fdopen(open_plain(one.path), "rb") as stream:
            digest, size = _store_blob(paths, stream.read(MAX_SIZE + 1), disk)
    except (Invalid, FileNotFoundError) as error:
        skipped.append(f"{one.name}: {error}")
        return None
    mode = stat.S_IMODE(one.status.st_mode) & _MODES
    return {"path": one.name, "mode": f"{mode:04o}", "size": size, "sha256": digest}


def _store_blob(paths: AgentPaths, data: bytes, disk: Disk) -> tuple[str, int]:
    digest = sha256(data).hexdigest()
    path = paths.workspace / _BLOBS / digest
    if not path.exists():
        files.replace_file(path, data, disk)
    return digest, len(data)


def _stays_inside(name: str, target: str) -> bool:
    """Tell whether a link leads to a place in the folder, by its text alone.

    Two dots stand at the beginning only: after another name, which may be a link, they could lead
    anywhere.
    """
    if not target or target.startswith("/") or "\\" in target or not target.isprintable():
        return False
    parts = target.split("/")
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return up <= name.count("/") and ".." not in parts[up:]


def _sweep(paths: AgentPaths, wanted: set[str]) -> None:
    for path in sorted((paths.workspace / _BLOBS).iterdir()):
        if path.name not in wanted:
            files.remove(path)


def _entries(paths: AgentPaths) -> dict[str, dict[str, Any]]:
    try:
        return {entry["path"]: entry for entry in read_manifest(paths)["files"]}
    except (FileNotFoundError, Invalid):
        return {}


def read_manifest(paths: AgentPaths) -> dict[str, Any]:
    """Return the manifest of a capture, checked: it may have come from anywhere.

    Raises `FileNotFoundError` when nothing was captured, `Invalid` for what is no manifest.
    """
    _check_folders(paths)
    path = paths.workspace / _MANIFEST
    manifest = read_json(path)
    try:
        seen: set[str] = set()
        leaves: set[str] = set()
        left = MAX_SIZE
        for entry in manifest["files"]:
            name = checked_name(entry["path"])
            if name != entry["path"] or name in seen:
                raise ValueError(name)
            seen.add(name)
            if "deleted" in entry:
                continue
            leaves.add(name)
            if "link" in entry:
                if not _stays_inside(name, entry["link"]):
                    raise ValueError(name)
                continue
            if int(entry["mode"], 8) & ~_MODES:
                raise ValueError(name)
            if not _is_digest(entry["sha256"]) or type(entry["size"]) is not int:
                raise ValueError(name)
            left -= max(entry["size"], 0)
        if left < 0 or len(seen) > MAX_FILES:
            raise ValueError("more than a capture takes")
        for name in leaves:
            if any(str(above) in leaves for above in PurePosixPath(name).parents):
                raise ValueError(name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Invalid(f"{path} is no manifest of captured files: {error}") from error
    return manifest


def stored_files(paths: AgentPaths) -> dict[str, Source]:
    """Return the manifest and each blob by its path in workspace/; nothing if nothing is captured.

    Raises `Invalid` when a blob is missing, or not what its name says.
    """
    try:
        manifest = read_manifest(paths)
    except FileNotFoundError:
        return {}
    found = {_MANIFEST: Source(_MANIFEST, path=paths.workspace / _MANIFEST)}
    for entry in manifest["files"]:
        if "sha256" in entry:
            name = f"{_BLOBS}/{entry['sha256']}"
            _blob(paths, entry)
            found[name] = Source(name, path=paths.workspace / name)
    return found


def files_as_they_stand(paths: AgentPaths) -> dict[str, Source]:
    """Return the manifest and each blob by its path in workspace/, damaged or not.

    Raises `UnsafePath`.
    """
    _check_folders(paths)
    found = {}
    blobs = (entry.name for entry in files.entries(paths.workspace / _BLOBS))
    for name in (_MANIFEST, *(f"{_BLOBS}/{blob}" for blob in blobs if _is_digest(blob))):
        with suppress(FileNotFoundError):
            found[name] = whole_file(paths.workspace / name, name)
    return found


def _blob(paths: AgentPaths, entry: dict[str, Any]) -> bytes:
    path = paths.workspace / _BLOBS / entry["sha256"]
    try:
        with os.fdopen(open_plain(path), "rb") as stream:
            data = stream.read(entry["size"] + 1)
    except FileNotFoundError:
        data = b""
    if len(data) != entry["size"] or sha256(data).hexdigest() != entry["sha256"]:
        raise Invalid(
            f"{path} is not what was captured of {entry['path']}", kind="workspace-damaged"
        )
    return data


class PutBack(NamedTuple):
    """What was put back: the folder, the paths written, and what was not, with the reason."""

    folder: Path
    written: list[str]
    skipped: list[str]


def put_back(
    paths: AgentPaths, folder: Path, is_private: Callable[[Path], bool] = lambda _path: False
) -> PutBack:
    """Write captured files into a working directory.

    What stands there and is the same is left, and nothing is removed. What no capture takes is
    not put back either: the manifest may have come from anywhere.

    Args:
        is_private: tells where nothing is put back (docs/configuration.md, "Trust").

    Raises `Invalid` (kind ``workspace-differs``) before anything is written when another file
    stands in place of one, and (kind ``private-folder``) when one is in such a place;
    `AgentsdirError` (kind ``no-workspace``) when none was captured.
    """
    try:
        manifest = read_manifest(paths)
    except FileNotFoundError:
        raise AgentsdirError(
            f"no files were captured with agent {paths.id}", kind="no-workspace"
        ) from None
    present = [one for one in manifest["files"] if "deleted" not in one]
    wanted = [one for one in present if not is_left_out(one["path"])]
    for path in (folder, *(folder / entry["path"] for entry in wanted)):
        if is_private(path):
            raise Invalid(
                f"{path} is not written: settings are kept there, or it is in an agents directory",
                hint="put the files into another folder",
                kind="private-folder",
            )
    missing = [entry for entry in wanted if not _stands(paths, folder, entry)]
    # Files first: a link that was there before could lead them elsewhere.
    for entry in sorted(missing, key=lambda entry: "link" in entry):
        _put(paths, folder, entry)
    skipped = [f"{one['path']}: no capture takes it" for one in present if one not in wanted]
    return PutBack(folder, [entry["path"] for entry in missing], skipped)


def _stands(paths: AgentPaths, folder: Path, entry: dict[str, Any]) -> bool:
    path = folder / entry["path"]
    for above in path.relative_to(folder).parents:
        if (folder / above).is_symlink() and above != Path():
            raise _differs(path, "a link stands in its way")
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise _differs(path, "a file stands in its way") from None
    if "link" in entry:
        same = stat.S_ISLNK(status.st_mode) and str(path.readlink()) == entry["link"]
    else:
        same = _is_same(path, status, _blob(paths, entry))
    if not same:
        raise _differs(path, "something else stands there")
    return True


def _is_same(path: Path, status: os.stat_result, data: bytes) -> bool:
    is_file = stat.S_ISREG(status.st_mode) and status.st_size == len(data)
    return is_file and path.read_bytes() == data


def _differs(path: Path, reason: str) -> Invalid:
    return Invalid(
        f"{path} is not written: {reason}",
        hint="nothing was overwritten; an empty folder takes all of it",
        kind="workspace-differs",
    )


def _put(paths: AgentPaths, folder: Path, entry: dict[str, Any]) -> None:
    path = folder / entry["path"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if "link" in entry:
            path.symlink_to(entry["link"])
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        data, descriptor = _blob(paths, entry), os.open(path, flags, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                # Never set-user-id, and always the owner's to read and write.
                os.fchmod(descriptor, int(entry["mode"], 8) & _MODES | 0o600)
        except OSError:
            path.unlink()
            raise
    except OSError as error:
        raise NotRecorded(f"cannot write {path}: {error.strerror}") from error
