"""From an agent's folder to a running provider session."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.contract import (
    RECORDABLE_MODES,
    SessionSpec,
    deny_all,
)
from agentsdir.engine.holding import turn_marks
from agentsdir.formats.directory import ids, transcripts
from agentsdir.formats.directory.creation import recorded_creation
from agentsdir.formats.directory.layout import read_json
from agentsdir.formats.errors import AgentsdirError, Invalid, ProviderError, Terminated, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentsdir.adapters.contract import (
        Architecture,
        Decision,
        Host,
        NativeFile,
        Process,
        ToolRequest,
    )
    from agentsdir.adapters.sides import Provider, ProviderSession
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.records import Record
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.source import Source


class TurnHost(NamedTuple):
    """What one turn adds to the user's `Client`.

    `permission_mode` is what the turn's sender said, which goes before everything else; `confirm`
    is given what the user answers by, `began` is told of the program, and `named` of the id that
    the client gave the session.
    """

    turn_id: str
    permission_mode: str = ""
    confirm: Callable[[Callable[[ToolRequest], Decision], ToolRequest], Decision] = (
        lambda ask, request: ask(request)
    )
    began: Callable[[Process], None] = lambda _process: None
    named: Callable[[str], None] = lambda _native_id: None


def find_provider(state: AgentState) -> tuple[Architecture, Provider]:
    """Return who runs an agent's turns. Raises `ProviderError` (kind ``no-provider``)."""
    return provider_of(state.session.provider_name)


def provider_of(name: str) -> tuple[Architecture, Provider]:
    """Return who runs turns under a name. Raises `ProviderError` (kind ``no-provider``)."""
    try:
        architecture = registry.get(name)
    except UsageError as error:
        raise ProviderError(error.message, hint=error.hint, kind="no-provider") from error
    if architecture.provider is None:
        raise ProviderError(f"{architecture.name!r} runs no sessions", kind="no-provider")
    return architecture, architecture.provider


def session_spec(
    world: World,
    paths: AgentPaths,
    state: AgentState,
    provider: Provider,
    turn: TurnHost | None = None,
) -> SessionSpec:
    """Return what a provider needs to know of an agent.

    Args:
        turn: the turn that is about to start; None for none.

    Raises `Invalid` when a stored transcript is damaged, or the user's configuration; and
    `ProviderError` for a permission mode that the log must not ask for.
    """
    record = recorded_creation(paths)
    created = record.data if record else {}
    own = created.get("provider") == state.session.provider_name
    options = created.get("options", {}) if own else {}  # who stands in has none of its own
    # A log may have come with a bundle: what is no option of ours could make a program do anything.
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
        system_prompt=created.get("system_prompt", ""),
        cwd=state.native.get("cwd") or state.cwd,
        now=world.now,
        sleep=world.sleep,
        new_id=lambda: ids.dashed(world.ids.session()),
        turn=state.counters["turns"] + 1 if turn else 0,
        options=options,
        transcripts=transcripts.load_sound(paths, state.transcripts, state.native["id"]),
    )
    if not provider.runs_program:
        return spec
    client = world.client(state)
    host = _turn_host(paths, state, client.host, record, turn) if turn else client.host
    return spec._replace(model=spec.model or client.model, host=host)


def check_imported(state: AgentState, provider: Provider, options: Mapping[str, Any]) -> None:
    """Raise `ProviderError` (kind ``bad-options``) if a bundle chose a file outside its folder.

    The options of an imported agent come from the bundle, and those of its forks and subagents
    from it.
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
    paths: AgentPaths, state: AgentState, host: Host, record: Record | None, turn: TurnHost
) -> Host:
    ask = host.confirm
    if state.descriptor.get("type") == "subagent":
        ask = deny_all  # nobody sits beside a background agent (decision D34)
    return host._replace(
        marks=turn_marks(paths, turn.turn_id),
        permission_mode=turn.permission_mode or recorded_mode(record) or host.permission_mode,
        confirm=lambda request: turn.confirm(ask, request),
        began=turn.began,
        named=turn.named,
    )


def recorded_mode(record: Record | None) -> str:
    """Return the permission mode that an agent was created with, empty for none.

    Raises `ProviderError` (kind ``permission-mode``) for one that grants more than the default: a
    log is no place to grant it (decision D33).
    """
    mode = record.data.get("permission_mode") if record else None
    if mode in (None, ""):
        return ""
    if mode not in RECORDABLE_MODES:
        raise ProviderError(
            f"the log asks for the permission mode {mode!r}, which no log can grant",
            hint="`send --permission-mode` and config.toml can",
            kind="permission-mode",
        )
    return str(mode)


@contextmanager
def open_provider(
    world: World, provider: Provider, spec: SessionSpec, blob: bytes = b""
) -> Iterator[ProviderSession]:
    """Open the agent's provider session, and stop it in any case.

    Args:
        blob: what the provider gave at the suspension that this ends; empty for none.

    Raises `ProviderError` when it will not open, or this root may start none.
    """
    world.check_trust()
    # Before the first turn there is nothing to restore from.
    with provider_errors():
        session = provider.restore(spec, blob) if spec.transcripts else provider.create(spec)
    try:
        yield session
    finally:
        with provider_errors():
            session.stop()


def crashed(error: Exception | SystemExit) -> ProviderError:
    """Return what a provider raised that it should not have, as an error of ours."""
    return ProviderError(f"the provider raised {type(error).__name__}: {error}")


@contextmanager
def provider_errors() -> Iterator[None]:
    """Turn whatever a provider raises into a `ProviderError`; ours pass."""
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
    """Yield what `Provider.fork` does; what it should not raise is a `ProviderError`."""
    with provider_errors():
        yield from provider.fork(saved, old_id, new_id, report)


def suspension_blob(paths: AgentPaths) -> bytes:
    """Return the blob of a suspended session; it is a short cut, so damage to it is no error."""
    try:
        return base64.b64decode(read_json(paths.session)["provider_state"], validate=True)
    except (FileNotFoundError, Invalid, KeyError, TypeError, ValueError):
        return b""
