"""From an agent's folder to a running provider session, and its transcripts back."""

from __future__ import annotations

from contextlib import contextmanager

from agentsdir.adapters import registry
from agentsdir.adapters.contract import ProviderSession, SessionSpec
from agentsdir.engine.world import World
from agentsdir.formats.directory import transcripts
from agentsdir.formats.directory.agent import AgentWriter
from agentsdir.formats.directory.creation import recorded_creation
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import AgentPaths, read_json
from agentsdir.formats.errors import AgentsdirError, Invalid, ProviderError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def open_provider(
    world: World, paths: AgentPaths, state: AgentState, blob: bytes = b""
) -> Iterator[ProviderSession]:
    """Open the agent's provider session, and stop it in any case.

    Args:
        blob: what the provider gave at the suspension that this ends; empty for none.

    Raises `ProviderError` when there is no such provider, it will not open, or this root may start
    none, and `Invalid` when a stored transcript is damaged.
    """
    world.check_trust()
    try:
        architecture = registry.get(state.session.provider_name)
    except UsageError as error:
        raise ProviderError(error.message, hint=error.hint, kind="no-provider") from error
    provider = architecture.provider
    if provider is None:
        raise ProviderError(f"{architecture.name!r} runs no sessions", kind="no-provider")
    saved = transcripts.load_sound(paths, state.transcripts)
    record = recorded_creation(paths)
    created = record.data if record else {}
    spec = SessionSpec(
        native_id=state.native["id"],
        model=state.session.model,
        system_prompt=created.get("system_prompt", ""),
        cwd=state.cwd,
        now=world.now,
        sleep=world.sleep,
        turn=state.counters["turns"] if state.open_turn else 0,
        options=created.get("options", {}),
        transcripts=saved,
    )
    # Before the first turn there is nothing to restore from.
    with provider_errors():
        session = provider.restore(spec, blob) if saved else provider.create(spec)
    try:
        yield session
    finally:
        with provider_errors():
            session.stop()


def crashed(error: Exception) -> ProviderError:
    """Return what a provider raised that it should not have, as an error of ours."""
    return ProviderError(f"the provider raised {type(error).__name__}: {error}")


@contextmanager
def provider_errors() -> Iterator[None]:
    """Turn whatever a provider raises into a `ProviderError`; ours pass."""
    try:
        yield
    except AgentsdirError:
        raise
    except Exception as error:
        raise crashed(error) from error


def suspension_blob(paths: AgentPaths) -> bytes:
    """Return the blob of a suspended session; it is a short cut, so damage to it is no error."""
    import base64

    try:
        return base64.b64decode(read_json(paths.session)["provider_state"], validate=True)
    except (FileNotFoundError, Invalid, KeyError, TypeError, ValueError):
        return b""


def sync_transcripts(writer: AgentWriter, session: ProviderSession, ts: str) -> None:
    """Store what the provider's transcripts gained, and record it (decision D7)."""
    with provider_errors():
        natives = session.transcripts()
    known = writer.state.transcripts
    changed = []
    for native in natives:
        recorded = known[native.path]["size"] if native.path in known else None
        if synced := writer.store(native.path, native.role, native.source, recorded):
            changed.append(synced._asdict())
    if changed:
        writer.append("transcript.synced", {"files": changed}, ts)
