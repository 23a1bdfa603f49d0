"""The provider session of an agent: its provider, its profile, its native session."""

from __future__ import annotations

import base64
import os
import re
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import (
    RECORDABLE_MODES,
    Profile,
    ProgramProvider,
    SessionSpec,
)
from agentsdir.engine.turn_lock import turn_marks
from agentsdir.formats import ids
from agentsdir.formats.errors import (
    AgentsdirError,
    Invalid,
    ProviderError,
    SessionStateError,
    Terminated,
    UsageError,
)
from agentsdir.formats.store.agent import (
    creation_of,
    load_sound,
    recorded_creation,
    write_agent,
)
from agentsdir.formats.store.events import FALLBACK
from agentsdir.formats.store.files import entries
from agentsdir.formats.store.layout import checked_name, open_plain, read_json
from agentsdir.formats.store.log import read_records
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentsdir.adapters.protocol import (
        Architecture,
        Decision,
        Host,
        NativeFile,
        Process,
        Provider,
        ProviderSession,
        ToolRequest,
    )
    from agentsdir.engine.services import ClientConfig, Services
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.source import Source
    from agentsdir.formats.store.agent import AgentWriter
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

MAX_FILES = 1000
MAX_SIZE = 16 * 1024 * 1024
_INSTRUCTIONS = "instructions.md"
_FOLDERS = ("skills", "agents")
_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch
_REFUSED = re.compile(r"(\.?mcp|hooks?|settings)([.-].*)?", re.IGNORECASE)
# Keys that a client executes or connects to when it reads the file; also any key that is written in
# escapes, which may be one of them.
_REFUSED_KEY = re.compile(
    rb"""(^|[\s{,?])["']?(hooks|mcp_?servers|permissionMode|agent_card_(url|json))["']?\s*:"""
    rb"""|"[^"\n]*\\[^\n]*"\s*:""",
    re.IGNORECASE | re.MULTILINE,
)


class TurnHost(NamedTuple):
    """What one turn adds to the host of the user's `ClientConfig`.

    Attributes:
        permission_mode: overrides every other mode; empty does not.
        confirm: called with the user's confirmation function and a request.
        began: called with the process of the program.
        named: called with the id that the client gave the session.
        decide: asked about every tool call of the client, before it is; None for nothing.
    """

    turn_id: str
    permission_mode: str = ""
    confirm: Callable[[Callable[[ToolRequest], Decision], ToolRequest], Decision] = (
        lambda ask, request: ask(request)
    )
    began: Callable[[Process], None] = lambda _process: None
    named: Callable[[str], None] = lambda _native_id: None
    decide: Callable[[ToolRequest], Decision] | None = None


def find_provider(state: AgentState) -> tuple[Architecture, Provider]:
    """Return the provider of an agent. Raises `ProviderError` (kind ``no-provider``)."""
    return provider_of(state.session.provider_name)


def provider_of(name: str) -> tuple[Architecture, Provider]:
    """Return the provider of a name. Raises `ProviderError` (kind ``no-provider``)."""
    try:
        architecture = registry.get(name)
    except UsageError as error:
        raise ProviderError(error.message, hint=error.hint, kind="no-provider") from error
    if architecture.provider is None:
        raise ProviderError(f"{architecture.name!r} runs no sessions", kind="no-provider")
    return architecture, architecture.provider


def session_spec(
    services: Services,
    paths: AgentPaths,
    state: AgentState,
    provider: Provider,
    turn: TurnHost | None = None,
) -> SessionSpec:
    """Return the description of an agent's session for its provider.

    Args:
        turn: the turn that is about to start; None for none.

    Raises `Invalid` when a stored transcript is damaged, or the user's configuration; and
    `ProviderError` for a permission mode that the log must not ask for.
    """
    record = recorded_creation(paths)
    created = record.data if record else {}
    own = created.get("provider") == state.session.provider_name
    options = created.get("options", {}) if own else {}  # a fallback has no options
    # A log may come from a bundle: an unknown option could make a program do anything.
    if type(options) is not dict or not set(options) <= set(provider.option_names):
        names = options if isinstance(options, dict) else [options]
        raise ProviderError(
            f"the log has options that the provider does not: {', '.join(map(str, names))}",
            hint="nothing was started; the log is not of this program's making",
            kind="bad-options",
        )
    if not all(isinstance(value, str) for value in options.values()):
        raise ProviderError("the log has options that are no text", kind="bad-options")
    check_imported(state, provider, options)
    spec = SessionSpec(
        native_id=state.native["id"],
        model=state.session.model,
        system_prompt=recorded_prompt(record, state),
        cwd=state.native.get("cwd") or state.cwd,
        now=services.now,
        sleep=services.sleep,
        new_id=lambda: ids.dashed(services.ids.session()),
        turn=state.counters["turns"] + 1 if turn else 0,
        options=options,
        transcripts=load_sound(paths, state),
    )
    if not provider.runs_program:
        return spec
    client = services.client_config(state)
    host = _turn_host(paths, state, client, record, turn) if turn else client.host
    return spec._replace(model=spec.model or client.model, host=host)


def check_imported(state: AgentState, provider: Provider, options: Mapping[str, Any]) -> None:
    """Raise `ProviderError` (kind ``bad-options``) if a bundle chose a file outside its folder.

    The options of an imported agent, and of its forks and subagents, come from the bundle.
    """
    if not state.imported:
        return
    for name in getattr(provider, "path_options", ()):
        parts = PurePosixPath(str(options.get(name, ""))).parts
        if ".." in parts or parts[:1] == ("/",):
            raise ProviderError(
                f"the bundle that agent {state.agent_id} came in names a file outside its working "
                f"directory: {name}={options[name]}",
                hint="make an agent with an option of your own: `agentsdir new --option`",
                kind="bad-options",
            )


def _turn_host(
    paths: AgentPaths,
    state: AgentState,
    client: ClientConfig,
    record: Record | None,
    turn: TurnHost,
) -> Host:
    host = client.host
    ask = host.confirm
    return host._replace(
        marks=turn_marks(paths, turn.turn_id),
        permission_mode=turn.permission_mode or mode_of(client, record, state),
        confirm=lambda request: turn.confirm(ask, request),
        on_start=turn.began,
        on_native_id=turn.named,
        decide=turn.decide,
    )


def mode_of(client: ClientConfig, record: Record | None, state: AgentState) -> str:
    """Return the permission mode of an agent for which nothing else is asked; empty for none.

    Raises what `recorded_mode` does.
    """
    return client.granted_mode or recorded_mode(record, state) or client.host.permission_mode


def recorded_prompt(record: Record | None, state: AgentState) -> str:
    """Return the system prompt that an agent was last given, or created with."""
    created = record.data.get("system_prompt") if record else None
    return state.settings.get("systemPrompt", created if isinstance(created, str) else "")


def recorded_mode(record: Record | None, state: AgentState) -> str:
    """Return the permission mode that an agent was last given, or created with; empty for none.

    Raises `ProviderError` (kind ``permission-mode``) for a mode that grants more than the default:
    a log must not grant it (decision D33).
    """
    created = record.data.get("permission_mode") if record else None
    mode = state.settings.get("permissionMode", created)
    if mode in (None, ""):
        return ""
    if mode not in RECORDABLE_MODES:
        raise ProviderError(
            f"the log asks for the permission mode {mode!r}, which no log can grant",
            hint=f"`agentsdir set {state.agent_id} permission-mode=MODE` can, and "
            "`send --permission-mode`",
            kind="permission-mode",
        )
    return str(mode)


@contextmanager
def open_provider(
    services: Services, provider: Provider, spec: SessionSpec, blob: bytes = b""
) -> Iterator[ProviderSession]:
    """Open the provider session of an agent, and stop it at the end of the block.

    Args:
        blob: the provider's state from the suspension before; empty for none.

    Raises `ProviderError` if it cannot be opened, or this root may not start a provider.
    """
    services.check_trust()
    # Before the first turn there is nothing to restore from.
    with provider_errors():
        session = provider.restore(spec, blob) if spec.transcripts else provider.create(spec)
    try:
        yield session
    finally:
        with provider_errors():
            session.stop()


def crashed(error: Exception | SystemExit) -> ProviderError:
    """Return an unexpected exception of a provider as a `ProviderError`."""
    return ProviderError(f"the provider raised {type(error).__name__}: {error}")


@contextmanager
def provider_errors() -> Iterator[None]:
    """Turn unexpected exceptions of a provider into `ProviderError`."""
    try:
        yield
    except (AgentsdirError, Terminated):
        raise
    except (Exception, SystemExit) as error:
        raise crashed(error) from error


def forked_files(
    provider: Provider,
    saved: Mapping[str, Source],
    old_id: str,
    new_id: str,
    report: Callable[[Finding], None],
) -> Iterator[NativeFile]:
    """Yield what `Provider.fork` yields; its unexpected exceptions become `ProviderError`."""
    with provider_errors():
        yield from provider.fork(saved, old_id, new_id, report)


def suspension_blob(paths: AgentPaths) -> bytes:
    """Return the blob of a suspended session; empty if it is damaged: it only saves time."""
    try:
        return base64.b64decode(read_json(paths.session)["provider_state"], validate=True)
    except (FileNotFoundError, Invalid, KeyError, TypeError, ValueError):
        return b""


# Agent profiles: files of a root for the working directories of its agents (docs/configuration.md,
# "Profiles"). Files that a client would execute without asking are refused by name: settings, hooks
# and MCP servers (decision D33).


def load_profile(layout: Layout, name: str) -> Profile:
    """Return a profile of this root.

    Raises `UsageError` (kind ``no-such-profile``) when there is none of that name, and `Invalid`
    (kind ``bad-profile``) for one that holds a link, too much, or what no profile may hold.
    """
    top = layout.root / "profiles" / name
    if not _is_name(name) or not top.is_dir() or top.is_symlink() or top.parent.is_symlink():
        raise UsageError(
            f"there is no profile {name!r} in {layout.root / 'profiles'}",
            hint=f"a profile is a folder there, with {_INSTRUCTIONS}, skills/ and agents/",
            kind="no-such-profile",
        )
    files: dict[str, bytes] = {}
    left = MAX_SIZE
    for entry in entries(top):
        path = Path(entry.path)
        inner = path.relative_to(top).as_posix()
        _check_place(top, inner, is_folder=entry.is_dir(follow_symlinks=False))
        if entry.is_dir(follow_symlinks=False):
            continue
        with os.fdopen(open_plain(path), "rb") as stream:
            data = stream.read(left + 1)
        left -= len(data)
        if left < 0 or len(files) == MAX_FILES:
            raise _bad(top, f"it has more than {MAX_FILES} files, or {MAX_SIZE} bytes")
        if _REFUSED_KEY.search(_front(data)):
            raise _bad(top, f"{inner} brings hooks, MCP servers or permissions")
        files[inner] = data
    return Profile(
        instructions=files.pop(_INSTRUCTIONS, b"").decode(errors="replace"),
        skills=_below(files, "skills"),
        agents=_below(files, "agents"),
    )


def _check_place(top: Path, inner: str, *, is_folder: bool) -> None:
    parts = PurePosixPath(inner).parts
    known = parts[0] in _FOLDERS and (is_folder or len(parts) > 1)
    if not known and (inner != _INSTRUCTIONS or is_folder):
        raise _bad(top, f"{inner} is none of {_INSTRUCTIONS}, skills/ and agents/")
    if any(_REFUSED.fullmatch(part) for part in parts):
        raise _bad(top, f"{inner} is named like settings, hooks or MCP servers")
    checked_name(inner)


def _front(data: bytes) -> bytes:
    """Return the front matter of a Markdown file, or nothing."""
    data = data.replace(b"\r", b"\n").lstrip(b"\xef\xbb\xbf \t\n")
    if not data.startswith(b"---"):
        return b""
    end = data.find(b"\n---", 3)
    return data[: end if end >= 0 else len(data)]


def _below(files: dict[str, bytes], folder: str) -> dict[str, bytes]:
    start = f"{folder}/"
    return {name[len(start) :]: data for name, data in files.items() if name.startswith(start)}


def _bad(top: Path, reason: str) -> Invalid:
    return Invalid(f"the profile {top} is not used: {reason}", kind="bad-profile")


class Applied(NamedTuple):
    """Files of a profile that were written, each with path and sha256, and paths in the way."""

    written: list[dict[str, str]]
    skipped: list[str]


def check_folder(paths: AgentPaths, state: AgentState) -> None:
    """Raise `SessionStateError` (kind ``no-folder``) where a program has no folder to run in."""
    try:
        provider = find_provider(state)[1]
    except ProviderError:  # the turn says so, unless another provider stands in
        return
    if isinstance(provider, ProgramProvider) and not Path(state.cwd).is_dir():
        name = state.name or paths.id
        raise SessionStateError(
            f"the working directory {state.cwd} is gone",
            hint=f"if it was moved, `agentsdir set {name} cwd=.` in its new place",
            kind="no-folder",
        )


def apply_profile(
    services: Services,
    paths: AgentPaths,
    state: AgentState,
    provider: Provider,
    *,
    anew: bool = False,
) -> None:
    """Write the agent's profile into its working directory, before each turn until one succeeded.

    Only missing files are written and logged; the user is notified of files that are in the way.

    Args:
        anew: write it although a turn succeeded: the provider may have changed.

    Raises what `load_profile` and `check_folder` raise, `AgentsdirError` when the system refuses,
    and `Invalid` (kind ``private-folder``) when a file would stand where programs keep settings.
    """
    done_before = state.counters["turns"] > state.counters["failedTurns"] and not anew
    if not state.profile or done_before or not isinstance(provider, ProgramProvider):
        return
    wanted = provider.workspace_files(load_profile(services.layout, state.profile))
    check_folder(paths, state)
    folder = Path(state.cwd)
    for name in sorted(wanted):
        if services.is_private(folder / checked_name(name)):
            raise Invalid(
                f"the profile {state.profile} is not used: {folder / name} is where settings are "
                "kept, or in an agents directory",
                hint=f"`agentsdir set {paths.id} cwd=DIR` gives the agent another folder",
                kind="private-folder",
            )
    done = write_missing(folder, wanted)
    if done.written or done.skipped:
        data = {
            "profile": state.profile,
            "cwd": state.cwd,
            "files": done.written,
            "skipped": done.skipped,
        }
        with write_agent(paths, disk=services.disk, known=state) as writer:
            writer.append("profile.applied", data, services.now())
    for name in done.skipped:
        services.notify_user(f"{folder / name} is not of the profile {state.profile}; it was left")


def write_missing(folder: Path, wanted: Mapping[str, bytes]) -> Applied:
    """Write files of a profile that a folder lacks; files with other content, and links, are left.

    Args:
        wanted: by relative path.

    Raises `UnsafePath` for a path that leads out of the folder, and `AgentsdirError` when the
    system refuses.
    """
    done = Applied([], [])
    for name, data in sorted(wanted.items()):
        path = folder / checked_name(name)
        try:
            if _is_in_the_way(folder, path, data):
                done.skipped.append(name)
            elif not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                _create(path, data)
                done.written.append({"path": name, "sha256": sha256(data).hexdigest()})
        except OSError as error:
            raise AgentsdirError(f"cannot write {path}: {error.strerror}") from error
    return done


def _is_in_the_way(folder: Path, path: Path, data: bytes) -> bool:
    """Return whether other content is at the path; a link always is."""
    for above in path.relative_to(folder).parents[:-1]:
        place = folder / above
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            return True
    try:
        with os.fdopen(open_plain(path), "rb") as stream:
            return stream.read(len(data) + 1) != data
    except FileNotFoundError:
        return path.is_symlink()
    except AgentsdirError:
        return True


def _create(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "wb") as stream:
        stream.write(data)


def change_native(
    writer: AgentWriter, native_id: str, reason: str, ts: str, *, cwd: str | None = None
) -> None:
    """Log that the agent continues in another native session (decisions D22 and D24).

    Transcripts that are synced after this belong to the new session. Those of the old session stay
    stored, but no provider gets them.

    Args:
        reason: `reset`, or `named` by the client.
        cwd: the working directory of the new session; None for that of the old one.
    """
    native = {**writer.state.native, "id": native_id}
    if cwd is not None:
        native["cwd"] = cwd
    writer.append("native.changed", {"native": native, "reason": reason}, ts)


def primary_native(
    paths: AgentPaths, state: AgentState, seen: NativeRecords | None = None
) -> dict[str, Any]:
    """Return the native session of the agent's own architecture, which a fallback leaves.

    Args:
        seen: taken from the log up to `state`; without it the log is read as far as is needed.
    """
    created = seen.created if seen else recorded_creation(paths)
    own: dict[str, Any] = created.data["native"] if created else state.native
    if own["architecture"] == state.native["architecture"]:
        return state.native
    if seen is None:
        seen = NativeRecords()
        for record in read_records(paths.log):
            seen.take(record)
    own = seen.last.get(own["architecture"], own)
    # The agent's present folder counts, not that of an earlier record.
    return {**own, "cwd": state.cwd}


class NativeRecords:
    """The native sessions of an agent's log, taken record by record.

    Attributes:
        created: the agent's creation (see `creation_of`), which has the first; None if it is lost.
        last: by architecture, the last one that a `native.changed` names.
    """

    def __init__(self) -> None:
        self.created: Record | None = None
        self.last: dict[str, dict[str, Any]] = {}

    def take(self, record: Record) -> None:
        """Take the next record of the log."""
        if self.created is None:
            self.created = creation_of(record)
        if record.event == "native.changed":
            native = record.data.get("native")
            if isinstance(native, dict) and isinstance(native.get("architecture"), str):
                self.last[native["architecture"]] = native


def return_to_primary(
    paths: AgentPaths, state: AgentState, seen: NativeRecords | None = None
) -> dict[str, Any] | None:
    """Return the data of the `native.changed` that ends a fallback; None if there was none.

    Also None for a session that was terminated meanwhile (decision D15).
    """
    if state.session.state is SessionState.TERMINATED:
        return None
    own = primary_native(paths, state, seen)
    return None if own == state.native else fallback_change(own)


def fallback_change(native: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a `native.changed` to the session of a fallback, or back from it."""
    return {"native": native, "reason": FALLBACK}
