"""Transcripts and the log, kept level: before a turn, at its end, and at a reset (decision D7)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agentsdir.adapters.contract import program_of
from agentsdir.engine.provider_sessions import provider_errors
from agentsdir.formats import jsontext
from agentsdir.formats.directory import transcripts
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.errors import Invalid
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agentsdir.adapters.contract import Architecture, NativeFile, SessionSpec
    from agentsdir.adapters.sides import ProgramProvider, Provider
    from agentsdir.engine.transcript_blocks import Logged
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.agent import AgentWriter
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.publishing import UnpublishedAgent
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.directory.transcripts import Synced
    from agentsdir.formats.reading.blocks import Block

_REPLACED = "sidecar"
"""The role of files that a client replaces as it goes on."""


def log_block(
    writer: AgentWriter | UnpublishedAgent, turn_id: str | None, block: Block, ts: str
) -> Block:
    """Append a block, made writable if need be; return it as it was logged."""
    try:
        writer.append("block", {"turn_id": turn_id, "block": block}, ts)
    except Invalid as error:
        if error.kind != "value-refused":
            raise
        # What a provider says need not round-trip; its transcript keeps the bytes (D6).
        block = jsontext.cleaned(block, depth=3)
        writer.append("block", {"turn_id": turn_id, "block": block}, ts)
    return block


def store_transcripts(
    writer: AgentWriter,
    natives: Sequence[NativeFile],
    goes_on: Callable[[Source, Source], bool] = lambda _saved, _present: False,
) -> list[Synced]:
    """Store what the provider's transcripts gained; return what the log has to be told.

    Args:
        goes_on: tells whether a file that was written anew may take the place of its copy.

    Raises `Invalid` (kind ``transcript-differs``), overwriting nothing, and errors of the disk.
    """
    changed = []
    for native in natives:
        replaced = native.role == _REPLACED
        try:
            synced = writer.store(native.path, native.role, native.source, rewrite=replaced)
        except Invalid as error:
            if error.kind != "transcript-differs":
                raise
            copy = transcripts.store_path(writer.paths, native.path)
            if not goes_on(Source(native.path, path=copy), native.source):
                raise
            synced = writer.store(native.path, native.role, native.source, rewrite=True)
        if synced:
            changed.append(synced)
    return changed


def name_transcripts(writer: AgentWriter, changed: Sequence[Synced], ts: str) -> None:
    """Have the log name what was stored, and put rewritten copies in their places."""
    if changed:
        entries = [synced.as_entry() for synced in changed]
        writer.append("transcript.synced", {"files": entries}, ts)
    if any(synced.rewritten for synced in changed):
        writer.finish_rewrites()


def new_blocks(
    architecture: Architecture,
    natives: Sequence[NativeFile],
    changed: Sequence[Synced],
    logged: Logged,
) -> Iterator[Block]:
    """Yield what the transcripts show since they `changed`, and the log lacks or has differently.

    They are read from the provider's own files, which were just stored.
    """
    from agentsdir.engine.transcript_blocks import unlogged_blocks

    sources = {native.path: native.source for native in natives}
    read = [native.source for native in natives if native.role in ("main", "subagent")]
    since = {sources[synced.path].name: synced.grown_from for synced in changed}
    with provider_errors():
        yield from unlogged_blocks(architecture, read, logged, since)


def catch_up(
    world: World,
    paths: AgentPaths,
    state: AgentState,
    architecture: Architecture,
    provider: Provider,
    spec: SessionSpec,
) -> tuple[AgentState, SessionSpec]:
    """Take over what the real client did meanwhile, and give it what it lacks.

    Turns that were made in the client become blocks outside any turn of ours, and are stored before
    the log names them: done half, it is done again.

    Returns:
        The agent's state, and the spec with its transcripts as they are stored now.

    Raises `Invalid` (kind ``transcript-differs``) when a native file is shorter than its stored
    copy or another; nothing is overwritten then.
    """
    if (program := program_of(provider)) is None:
        return state, spec
    with provider_errors():
        natives = program.native_files(spec)
    with write_agent(paths, disk=world.disk, known=state) as writer:
        changed = store_transcripts(writer, natives, partial(program.goes_on, ours=False))
        state = writer.state
    if changed:
        from agentsdir.engine.transcript_blocks import Logged

        # Stored, logged, named: who dies in between is followed by one who does it again.
        for block in new_blocks(architecture, natives, changed, Logged.of_log(paths)):
            with write_agent(paths, disk=world.disk, known=state) as writer:
                log_block(writer, None, block, world.now())
                state = writer.state
        with write_agent(paths, disk=world.disk, known=state) as writer:
            name_transcripts(writer, changed, world.now())
            state = writer.state
        saved = transcripts.load_sound(paths, state.transcripts, state.native["id"])
        spec = spec._replace(transcripts=saved)
    _place(program, spec, natives)
    return state, spec


def place_missing(provider: Provider, spec: SessionSpec) -> None:
    """Put saved transcripts where the client finds them, if they are not there (decision D11)."""
    if (program := program_of(provider)) is not None:
        with provider_errors():
            natives = program.native_files(spec)
        _place(program, spec, natives)


def _place(provider: ProgramProvider, spec: SessionSpec, natives: Sequence[NativeFile]) -> None:
    if spec.transcripts.keys() - {native.path for native in natives}:
        with provider_errors():
            provider.place(spec)
