"""One provider's attempt at a turn, from its first event to what it leaves (decisions D20, D24).

Each block is durable before the next one is asked for. What the transcripts show at the end and the
stream did not is logged before the attempt is over.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.contract import program_of
from agentsdir.engine.provider_sessions import crashed, open_provider, provider_errors
from agentsdir.engine.syncing import name_transcripts, new_blocks, store_transcripts
from agentsdir.engine.ticks import Ticks, limit_of
from agentsdir.formats import jsontext
from agentsdir.formats.errors import NotRecorded, ProviderError, Terminated, Uncertain
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN, block_key
from agentsdir.formats.reading.reducer import Reducer
from agentsdir.formats.reading.usage import BELIEVABLE, as_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.adapters.contract import Architecture, Content, SessionSpec
    from agentsdir.adapters.sides import Provider, ProviderSession
    from agentsdir.engine.hearing import Ear
    from agentsdir.engine.open_turn import OpenTurn
    from agentsdir.engine.recording import Recording
    from agentsdir.engine.transcript_blocks import Logged
    from agentsdir.formats.directory.agent import AgentWriter
    from agentsdir.formats.directory.transcripts import Synced
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.stream import StreamEvent

MAX_TICKS = "max_ticks"
_NO_ANSWER = frozenset({"user_message", "system"})


class Runner(NamedTuple):
    """Who runs a turn, and what it is told of the session."""

    architecture: Architecture
    provider: Provider
    spec: SessionSpec


class Said(NamedTuple):
    """What came of an attempt that ended well; `cost` is in US dollars."""

    response: str
    stop_reason: str
    usage: dict[str, Any] | None
    cost: float | None


def _events(session: ProviderSession, content: Content) -> Iterator[StreamEvent]:
    """Yield a turn's events; an exit that a provider asks for fails the turn, a signal passes."""
    try:
        yield from session.send(content)
    except Terminated:
        raise
    except SystemExit as error:
        raise crashed(error) from error


class Attempt:
    """One provider at work on one turn.

    Args:
        turn: has its turn.start in the log.
        on_event: called with each stream event.
        record: keep these events; that ends with `end`, or when the attempt is given up.
    """

    def __init__(
        self, turn: OpenTurn, on_event: Callable[[StreamEvent], None], *, record: bool
    ) -> None:
        self._turn = turn
        self._on_event = on_event
        self._ticks = Ticks(None)
        self._reducer = Reducer()
        self._logged: Logged | None = None
        self._record = record
        self._recording: Recording | None = None
        self._blocks: dict[tuple[str, str], Block] = {}
        self._limited: str | None = None
        self.has_answered = False

    def run(self, runner: Runner, content: Content, blob: bytes, ear: Ear) -> Said:
        """Have the provider answer.

        Args:
            blob: what it gave at the suspension that the turn ends; empty for none.
            ear: hears when the turn is to end.

        Raises `ProviderError` when it does not, kind ``max-ticks`` where it only called tools, and
        what the provider's own metadata says of a failure (docs/behaviour.md, "Failure").
        """
        program = runner.provider.runs_program
        if self._record or program:
            from agentsdir.engine.recording import Recording

            self._recording = Recording(self._turn.world, self._turn.paths, wanted=self._record)
            self._recording.provisional = program
        if program:
            from agentsdir.engine.transcript_blocks import Logged

            self._logged = Logged()
        self._ticks = Ticks(limit_of(self._turn.state.limits, runs_program=program))
        with open_provider(self._turn.world, runner.provider, runner.spec, blob) as session:
            try:
                with ear.listening():
                    self._listen(session, runner, content, ear)
            except (NotRecorded, Uncertain):
                raise
            except BaseException as error:
                if not isinstance(error, Exception):
                    self._wind_down(session, ear)
                self._keep(session, runner)
                raise
            self._keep(session, runner)
        return self._result()

    def _listen(self, session: ProviderSession, runner: Runner, content: Content, ear: Ear) -> None:
        """Take the provider's events to their end, or to the limit of model calls."""
        for event in _events(session, content):
            if self._ticks.is_beyond(event):
                self._limited = self._text()
                if runner.provider.runs_program:
                    self._take(event)  # its transcript may have what began
                self._wind_down(session, ear)
                return
            self._take(event)

    def _wind_down(self, session: ProviderSession, ear: Ear) -> None:
        """Have a provider end in its own way; a second interrupt stops it at once."""
        try:
            with ear.listening(), provider_errors():
                for event in session.interrupt():
                    self._take(event)
        except (NotRecorded, Uncertain):
            raise
        except BaseException:  # noqa: BLE001, what ended the turn is raised after this
            with suppress(Exception):
                session.stop()

    def _take(self, event: StreamEvent) -> None:
        if event["type"] == "metadata_update":
            event = {**event, "metadata": _in_our_words(event["metadata"])}
        if event["type"] == "block_complete":
            event = {**event, "block": self._log(event["block"])}
        self._show(event)

    def _log(self, block: Block) -> Block:
        """Log a completed block; return it as it was logged."""
        block = self._turn.log(block)
        if self._logged is not None:
            self._logged.add(block)
        self._blocks[block_key(block)] = block
        return block

    def _show(self, event: StreamEvent) -> None:
        if "block" in event and event["block"].get("type") not in _NO_ANSWER:
            self.has_answered = True
        self._reducer.apply(event)
        if self._recording is not None:
            self._recording.take(event, self._turn.state)
        self._on_event(event)

    def _keep(self, session: ProviderSession, runner: Runner) -> None:
        """Keep what the provider left: its transcripts, what they show, the stream."""
        turn, provider = self._turn, runner.provider
        with provider_errors():
            natives = session.transcripts()
        with turn.writer() as writer:
            if (program := program_of(provider)) is not None:
                changed = store_transcripts(writer, natives, partial(program.goes_on, ours=True))
            else:
                changed = store_transcripts(writer, natives)
            if self._logged is None and not self._reducer.open_blocks:
                self._name(writer, changed)  # nothing more is to come before that
                return
        added = []
        if self._logged is not None:
            if any(synced.rewritten for synced in changed):
                self._logged = self._logged.of_log(turn.paths)  # none of its rows is where it was
            for block in new_blocks(runner.architecture, natives, changed, self._logged):
                added.append(self._log(block))
                self._show(stream.block_complete(block["id"], added[-1]))
        for handle, block in self._reducer.open_blocks:
            if not any(_says_it_all(shown, block) for shown in added):
                self._take(stream.block_complete(handle, block))
        with turn.writer() as writer:
            self._name(writer, changed)

    def _name(self, writer: AgentWriter, changed: list[Synced]) -> None:
        """Have the log name what was kept."""
        if self._recording is not None:
            self._recording.sync(writer)
        name_transcripts(writer, changed, self._turn.world.now())
        if self._recording is not None:
            self._recording.is_spent = True

    def end(self) -> None:
        """Close what was recorded, and remove it if nothing needs it."""
        if self._recording is not None:
            self._recording.end()

    def give_up(self) -> None:
        """Log the blocks again as superseded: another provider answers in this one's place."""
        for block in list(self._blocks.values()):
            given_up = self._turn.log({**block, "superseded": True})
            self._on_event(stream.block_complete(given_up["id"], given_up))
        self.end()

    def _text(self) -> str:
        said = [b for b in self._reducer.blocks(MAIN) if not b.get("superseded")]
        texts = [b["content"] for b in said if b["type"] == "assistant_text"]
        text: str = jsontext.clean("\n\n".join(texts), set())
        return text

    def _result(self) -> Said:
        if self._limited == "":
            raise ProviderError(
                f"the model was called {self._ticks.limit} times, which is the limit, and said "
                "nothing",
                hint="`new --max-ticks` sets it",
                kind="max-ticks",
            )
        usage, cost = self.spent
        if self._limited is not None:
            return Said(self._limited, MAX_TICKS, usage, cost)
        if (failure := _reported_failure(self._metadata)) is not None:
            raise failure
        reason = jsontext.clean(str(self._metadata.get("stopReason") or "end_turn"), set())
        return Said(self._text(), reason, usage, cost)

    @property
    def spent(self) -> tuple[dict[str, Any] | None, float | None]:
        """The tokens, and what the client says that they cost; None for what nobody said."""
        cost = self._metadata.get("costUSD")
        believed = cost if isinstance(cost, int | float) and 0 <= cost <= BELIEVABLE else None
        return self._metadata.get("usage"), believed

    @property
    def _metadata(self) -> dict[str, Any]:
        return self._reducer.metadata.get(MAIN, {})


def _in_our_words(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with its usage as ours, and its cost under the name that events have."""
    made = {**metadata}
    if "usage" in made:
        made["usage"] = as_usage(made["usage"])
    if "costUsd" in made:
        older = made.pop("costUsd")
        made.setdefault("costUSD", older)
    return made


def _reported_failure(metadata: dict[str, Any]) -> ProviderError | None:
    """Return the failure that a provider reports as an event, and does not raise; None for none."""
    reason, error = metadata.get("stopReason"), metadata.get("error")
    if reason == "aborted":
        return ProviderError("the provider aborted the turn", kind="aborted")
    if isinstance(error, dict):
        message = str(error.get("message") or "the provider reports an error")
        return ProviderError(message, kind=str(error.get("kind") or ProviderError.kind))
    if reason == "error":
        return ProviderError("the provider reports an error, and no reason")
    return None


def _says_it_all(shown: Block, block: Block) -> bool:
    """Tell whether a block of the transcript is what the stream only began."""
    same = all(shown.get(name) == block.get(name) for name in ("type", "conversationId"))
    text, begun = shown.get("content"), block.get("content")
    return same and isinstance(text, str) and isinstance(begun, str) and text.startswith(begun)
