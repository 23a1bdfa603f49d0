"""One turn: from the sync before it to its end in the log (decisions D10, D13, D14, D16, D20, D24).

`Turn` runs one message. It owns a `TurnContext`, which writes the log while `.turn` is held, and
one `Attempt` for each provider that is tried.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.protocol import RECORDABLE_MODES, Decision, ModelSession, program_of
from agentsdir.engine import handoff
from agentsdir.engine.callbacks import LoggedSession, TurnCallbacks
from agentsdir.engine.cancel import CancelToken, DeadlineExceeded, TurnCancelled, cancel_below
from agentsdir.engine.extensions import NO_EXTENSIONS, check_provider, decision_of
from agentsdir.engine.handoff import with_handoff
from agentsdir.engine.inbox import as_prompt
from agentsdir.engine.limits import TickCounter, limit_of
from agentsdir.engine.model_loop import LoopSurroundings, ModelLoop
from agentsdir.engine.notices import apply_step, child_started_steps, completion_steps, queued_by
from agentsdir.engine.providers import (
    TurnHost,
    apply_profile,
    change_native,
    crashed,
    find_provider,
    open_provider,
    provider_errors,
    provider_of,
    return_to_primary,
    session_spec,
)
from agentsdir.engine.recovery import open_call_steps
from agentsdir.engine.result import Denial, Ending, TurnResult, milliseconds, tools_of
from agentsdir.engine.runner import overrides, runner_errors
from agentsdir.engine.sync import (
    ChangedTranscripts,
    LoggedBlocks,
    StreamRecording,
    log_block,
    log_transcripts,
    store_transcripts,
    sync_with_client,
)
from agentsdir.engine.timeline import Timeline
from agentsdir.engine.tools import settled
from agentsdir.engine.turn_lock import has_leftovers, this_process
from agentsdir.formats import blocks, jsontext, signals
from agentsdir.formats.blocks import (
    BELIEVABLE,
    BLOCKS,
    MAIN,
    Reducer,
    as_usage,
    block_key,
    check_block,
)
from agentsdir.formats.errors import (
    AgentsdirError,
    HookFailed,
    NotRecorded,
    ProviderError,
    SessionStateError,
    Terminated,
    TurnTimeout,
    Uncertain,
)
from agentsdir.formats.signals import undisturbed
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.locks import OpenQuestion, Started, TurnNote, clear_note, write_note
from agentsdir.formats.store.state import SessionState, check_transition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.adapters.protocol import (
        Architecture,
        Content,
        Process,
        Provider,
        ProviderSession,
        SessionSpec,
        ToolRequest,
    )
    from agentsdir.engine.callbacks import SessionCallbacks
    from agentsdir.engine.extensions import Extensions
    from agentsdir.engine.notices import Step
    from agentsdir.engine.result import QueuedMessage
    from agentsdir.engine.services import Services
    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.store import locks
    from agentsdir.formats.store.agent import AgentWriter
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState
    from agentsdir.formats.store.transcripts import Synced

MAX_TICKS = "max_ticks"
_NO_ANSWER = frozenset(kind for kind, row in BLOCKS.items() if row.speaker in ("user", "client"))
_TOOL_NAME = 200
"""Characters of a tool's name that `.turn` holds."""
UNFINISHED_CALL = "The turn ended before this call returned."


class TurnContext:
    """The log and the lock of one turn, from before its `turn.start` on.

    `state` is the agent's state after the last record that this object read or appended.
    """

    def __init__(
        self, services: Services, paths: AgentPaths, state: AgentState, held: locks.Held
    ) -> None:
        self.services = services
        self.paths = paths
        self.state = state
        self.id = services.ids.agent()
        self._held = held
        self._note: TurnNote | None = None
        self.callbacks: SessionCallbacks | None = None
        self.denials: list[Denial] = []

    @property
    def has_started(self) -> bool:
        """Whether the log has the `turn.start` of this turn."""
        turn = self.state.open_turn
        return turn is not None and turn["turnId"] == self.id

    @contextmanager
    def writer(self) -> Iterator[AgentWriter]:
        """Open the log after the last known record. Raises if `.turn` is lost."""
        self._held.check()
        # A turn that has started waits for `.lock` without a limit: no block may be lost.
        patient = self.has_started
        with write_agent(
            self.paths, disk=self.services.disk, known=self.state, patient=patient
        ) as writer:
            self.state = writer.state
            yield writer

    def append(self, event: str, data: dict[str, Any]) -> None:
        """Append one record of this turn; its data need not name it."""
        with self.writer() as writer:
            writer.append(event, {"turn_id": self.id, **data}, self.services.now())

    def log(self, block: Block) -> Block:
        """Log a block of this turn; return it as it was logged."""
        check_block(block)
        with self.writer() as writer:
            return log_block(writer, self.id, block, self.services.now())

    def host(self, permission_mode: str) -> TurnHost:
        """Return what this turn adds to the user's client configuration.

        Args:
            permission_mode: overrides the recorded and the configured mode; empty does not.
        """
        return TurnHost(self.id, permission_mode, self._confirm, self._began, self._named)

    def confirm(self, request: ToolRequest) -> Decision:
        """Ask the user for a call of a tool that this process carries out."""
        return self._confirm(self.services.client_config(self.state).host.confirm, request)

    def _began(self, process: Process) -> None:
        """Write the program's process to `.turn`; the next holder ends it after a crash (D14)."""
        self._note = TurnNote(self.id, this_process(), Started(*process))
        write_note(self._held, self._note)

    def clear_note(self) -> None:
        """Empty `.turn`, unless a process of the turn still runs: the next holder ends that one."""
        if self._note is not None and not has_leftovers(self.paths):
            clear_note(self._held)

    def _named(self, native_id: str) -> None:
        """Log the id of the client's session at once: after a crash nothing else has it."""
        if native_id != self.state.native["id"]:
            with self.writer() as writer:
                change_native(writer, native_id, "named", self.services.now())

    def _confirm(self, ask: Callable[[ToolRequest], Decision], request: ToolRequest) -> Decision:
        """Ask for a tool call. A hook that fails denies it, and its failure is logged."""
        try:
            with self._noted_question(request):
                asked = self.callbacks
                decision = (asked.tool_decision(request) if asked else None) or ask(request)
        except HookFailed as failed:
            with self.writer() as writer:
                failure = jsontext.clean({"hook": failed.hook, "message": failed.message}, set())
                writer.append("hook.failed", failure, self.services.now())
            decision = Decision(allowed=False, reason=failed.message)
        if not decision.allowed:
            self.denials.append(Denial.of(request, decision))
        return decision

    @contextmanager
    def _noted_question(self, request: ToolRequest) -> Iterator[None]:
        """Have `.turn` say what the program waits for, as `list` shows it, until it is answered."""
        note = self._note
        if note is None:
            yield
            return
        question = OpenQuestion(request.tool_name[:_TOOL_NAME], self.services.now())
        # What only `list` reads must not fail a turn.
        with suppress(AgentsdirError):
            write_note(self._held, note._replace(question=question))
        try:
            yield
        finally:
            with suppress(AgentsdirError):
                write_note(self._held, note)


class TurnProvider(NamedTuple):
    """A provider that can run the turn, and the session that it opens."""

    architecture: Architecture
    provider: Provider
    spec: SessionSpec


class TurnOutput(NamedTuple):
    """The answer of a provider; `cost` is in US dollars, None if it is not known."""

    response: str
    stop_reason: str
    usage: dict[str, Any] | None
    cost: float | None


def _events(events: Iterator[StreamEvent]) -> Iterator[StreamEvent]:
    """Yield the events of a turn. `SystemExit` from a provider is an error, `Terminated` passes."""
    try:
        yield from events
    except Terminated:
        raise
    except SystemExit as error:
        raise crashed(error) from error


class Attempt:
    """One provider's attempt at a turn, from its first event to its transcripts (D20, D24).

    Each block is durable before the next event is requested. Blocks that only the transcripts have
    are logged before the attempt ends.

    Args:
        turn: its `turn.start` is in the log.
        on_event: called with each stream event.
        added: what the program that uses the library adds.
        on_call: called before each model call, where the model runs in this process.
        record: store these events, until `end` or `supersede`.
    """

    def __init__(
        self,
        turn: TurnContext,
        on_event: Callable[[StreamEvent], None],
        added: Extensions = NO_EXTENSIONS,
        on_call: Callable[[], None] = lambda: None,
        *,
        record: bool,
    ) -> None:
        self._turn = turn
        self._on_event = on_event
        self._added = added
        self._on_call = on_call
        self._loop: ModelLoop | None = None
        self._ticks = TickCounter(None)
        self._reducer = Reducer()
        self._logged: LoggedBlocks | None = None
        self._record = record
        self._recording: StreamRecording | None = None
        self._blocks: dict[tuple[str, str], Block] = {}
        self._limited: str | None = None
        self.has_answered = False

    def run(
        self, turn_provider: TurnProvider, content: Content, blob: bytes, cancel: CancelToken
    ) -> TurnOutput:
        """Send the prompt to the provider, log what it answers, and return the answer.

        Args:
            blob: the state that the provider returned when it was suspended; empty for none.
            cancel: raises when the turn is cancelled or its time is over.

        Raises `ProviderError` when the provider fails or reports a failure (docs/behaviour.md,
        "Failure"), kind ``max-ticks`` if it reached the limit of calls without a text.
        """
        program = turn_provider.provider.runs_program
        if self._record or program:
            self._recording = StreamRecording(
                self._turn.services, self._turn.paths, wanted=self._record
            )
            self._recording.provisional = program
        if program:
            self._logged = LoggedBlocks()
        self._ticks = TickCounter(limit_of(self._turn.state.limits, runs_program=program))
        with open_provider(
            self._turn.services, turn_provider.provider, turn_provider.spec, blob
        ) as session:
            if isinstance(session, ModelSession):
                self._loop = self._model_loop(session, turn_provider.spec, cancel)
            try:
                with cancel.watching():
                    self._take_events(session, turn_provider, content, cancel)
            except (NotRecorded, Uncertain):
                raise
            except BaseException as error:
                if not isinstance(error, Exception):
                    self._interrupt(session, cancel)
                self._save(session, turn_provider)
                raise
            finally:
                if self._loop is not None:
                    self._loop.stop()
            self._save(session, turn_provider)
        return self._result()

    @cached_property
    def _timeline(self) -> Timeline:
        return self._added.timeline or Timeline(self._turn.paths)

    def _model_loop(
        self, session: ModelSession, spec: SessionSpec, cancel: CancelToken
    ) -> ModelLoop:
        turn, state = self._turn, self._turn.state
        around = LoopSurroundings(
            state.agent_id,
            state.session.id,
            turn.id,
            lambda: self._timeline.entries(),
            turn.confirm,
            self._ticks,
            cancel.is_cancelled,
            self._on_call,
        )
        return ModelLoop(session, spec, self._added, around)

    def _take_events(
        self,
        session: ProviderSession,
        turn_provider: TurnProvider,
        content: Content,
        cancel: CancelToken,
    ) -> None:
        """Process the provider's events to their end, or to the limit of model calls."""
        loop = self._loop
        for event in _events(session.send(content) if loop is None else loop.events(content)):
            signals.check()
            if self._ticks.is_beyond(event):
                self._limited = self._text()
                if turn_provider.provider.runs_program:
                    self._take(event)  # its transcript may have this block
                self._interrupt(session, cancel)
                return
            self._take(event)
        if loop is not None and loop.is_limited:
            self._limited = self._text()

    def _interrupt(self, session: ProviderSession, cancel: CancelToken) -> None:
        """Interrupt the provider and take its last events; a second interrupt stops it at once."""
        try:
            with cancel.watching(), provider_errors():
                for event in (self._loop or session).interrupt():
                    self._take(event)
        except (NotRecorded, Uncertain):
            raise
        except BaseException:  # noqa: BLE001, the caller raises what ended the turn
            with suppress(Exception):
                session.stop()

    def _take(self, event: StreamEvent) -> None:
        if event["type"] == "metadata_update":
            event = {**event, "metadata": _normalized(event["metadata"])}
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

    def _save(self, session: ProviderSession, turn_provider: TurnProvider) -> None:
        """Store the transcripts and the recorded stream, and log the blocks that only they have."""
        turn, provider = self._turn, turn_provider.provider
        with provider_errors():
            natives = session.transcripts()
        with turn.writer() as writer:
            if (program := program_of(provider)) is not None:
                changed = store_transcripts(
                    writer, natives, partial(program.is_continuation, ours=True)
                )
            else:
                changed = store_transcripts(writer, natives)
            if self._logged is None and not self._reducer.open_blocks:
                self._name(writer, changed)  # no more blocks come before that
                return
        added, found = [], None
        if self._logged is not None:
            is_rewritten = any(synced.rewritten for synced in changed)
            if is_rewritten:
                self._logged = self._logged.of_log(turn.paths)  # none of its rows is where it was
            synced = turn.state.transcripts
            found = ChangedTranscripts(
                turn.paths, synced, turn_provider.architecture, natives, changed
            )
            for block in found.new_blocks(self._logged, of_turn=not is_rewritten):
                added.append(self._log(block))
                self._show(blocks.block_complete(block["id"], added[-1]))
        for handle, block in self._reducer.open_blocks:
            if not any(_completes(shown, block) for shown in added):
                self._take(blocks.block_complete(handle, block))
        with turn.writer() as writer:
            self._name(writer, changed)
        if found is not None:
            found.keep()

    def _name(self, writer: AgentWriter, changed: list[Synced]) -> None:
        """Log the names and digests of what was stored."""
        if self._recording is not None:
            self._recording.sync(writer)
        log_transcripts(writer, changed, self._turn.services.now())
        if self._recording is not None:
            self._recording.is_redundant = True

    def end(self) -> None:
        """Close the recorded stream, and remove it if the log has all of it."""
        if self._recording is not None:
            self._recording.end()

    def supersede(self) -> None:
        """Log the blocks again as superseded: a fallback answers in place of this provider."""
        for block in list(self._blocks.values()):
            given_up = self._turn.log({**block, "superseded": True})
            self._on_event(blocks.block_complete(given_up["id"], given_up))
        self.end()

    def _text(self) -> str:
        current = [b for b in self._reducer.blocks(MAIN) if not b.get("superseded")]
        texts = [b["content"] for b in current if b["type"] == "assistant_text"]
        text: str = jsontext.clean("\n\n".join(texts), set())
        return text

    def _result(self) -> TurnOutput:
        if self._limited == "":
            raise ProviderError(
                f"the model was called {self._ticks.limit} times, which is the limit, and said "
                "nothing",
                hint="`new --max-ticks` sets it",
                kind="max-ticks",
            )
        usage, cost = self.spent
        if self._limited is not None:
            return TurnOutput(self._limited, MAX_TICKS, usage, cost)
        if (failure := _reported_failure(self._metadata)) is not None:
            raise failure
        reason = jsontext.clean(str(self._metadata.get("stopReason") or "end_turn"), set())
        return TurnOutput(self._text(), reason, usage, cost)

    @property
    def tools_used(self) -> dict[str, int]:
        """How often each tool was called, by its name."""
        return tools_of(self._blocks.values())

    @property
    def spent(self) -> tuple[dict[str, Any] | None, float | None]:
        """Tokens, and their cost in US dollars; None for what the provider does not report."""
        cost = self._metadata.get("costUSD")
        believed = cost if isinstance(cost, int | float) and 0 <= cost <= BELIEVABLE else None
        return self._metadata.get("usage"), believed

    @property
    def _metadata(self) -> dict[str, Any]:
        return self._reducer.metadata.get(MAIN, {})


def _normalized(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with usage in our form, and the cost under its present name."""
    made = {**metadata}
    if "usage" in made:
        made["usage"] = as_usage(made["usage"])
    if "costUsd" in made:
        older = made.pop("costUsd")
        made.setdefault("costUSD", older)
    return made


def _reported_failure(metadata: dict[str, Any]) -> ProviderError | None:
    """Return a failure that a provider reports in its metadata without raising; None for none."""
    reason, error = metadata.get("stopReason"), metadata.get("error")
    if reason == "aborted":
        return ProviderError("the provider aborted the turn", kind="aborted")
    if isinstance(error, dict):
        message = str(error.get("message") or "the provider reports an error")
        return ProviderError(message, kind=str(error.get("kind") or ProviderError.kind))
    if reason == "error":
        return ProviderError("the provider reports an error, and no reason")
    return None


def _completes(shown: Block, block: Block) -> bool:
    """Return whether a block of the transcript completes a block that the stream began."""
    same = all(shown.get(name) == block.get(name) for name in ("type", "conversationId"))
    text, begun = shown.get("content"), block.get("content")
    return same and isinstance(text, str) and isinstance(begun, str) and text.startswith(begun)


class SlotLease(NamedTuple):
    """The slot of a session that runs a turn.

    `blob` is the provider's state from the suspension that the turn ends. `release` is called when
    the provider is not needed any more, whatever the outcome.
    """

    blob: bytes = b""
    release: Callable[[], None] = lambda: None


class TurnOptions(NamedTuple):
    """Options of one turn.

    Attributes:
        on_event: called with each stream event.
        record: store the stream events.
        permission_mode: overrides the mode of the agent and of the user's configuration.
        timeout: seconds after which the turn is ended; 0 sets no limit.
        on_tick: called several times a second while the turn runs: in the main thread by a signal
            handler, amid anything that this process does, in another one only while the turn waits.
            It must be brief, and must not raise.
        on_wait: the same while the command that wants this turn runs others, before or after it.
        on_queued: called with the id of the message when it is in the inbox, before its turn is
            waited for.
        while_waiting: called at least once a second while this turn, or one before it of the same
            agent, waits for `.turn` or a slot. What it raises ends the wait.
        before_start: called when the turn has its slot. What it raises keeps it from beginning.
        on_start: called with the turn's id when its `turn.start` is in the log. What it raises ends
            the turn.
        on_recorded: called with the turn's id where another process has run the turn.
        on_end: called with the result when the turn has ended.
        on_others: called when the turns of other agents that result from this one have gone on: now
            and then, and after each event of those that this process runs.
        reports: whether the parent gets a notice of a subagent's failure; else its caller has it.
        extensions: what a program that uses the library adds to the turns of this agent.
    """

    on_event: Callable[[StreamEvent], None]
    record: bool = False
    permission_mode: str = ""
    timeout: float = 0
    on_tick: Callable[[], None] | None = None
    on_wait: Callable[[], None] | None = None
    on_queued: Callable[[str], None] | None = None
    while_waiting: Callable[[], None] = lambda: None
    before_start: Callable[[], None] | None = None
    on_start: Callable[[str], None] | None = None
    on_recorded: Callable[[str], None] | None = None
    on_end: Callable[[TurnResult], None] | None = None
    on_others: Callable[[], None] | None = None
    reports: bool = True
    extensions: Extensions = NO_EXTENSIONS


def check_can_run(state: AgentState) -> None:
    """Raise `SessionStateError` for a session that is terminated."""
    if state.session.state is not SessionState.ACTIVE:
        check_transition(state.session.state, SessionState.ACTIVE, state.agent_id)


class Turn:
    """One turn of an agent, while `.turn` is held.

    Args:
        message: as it stands in the inbox; None for a turn without a message.
    """

    def __init__(
        self,
        services: Services,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        message: dict[str, Any] | None,
        options: TurnOptions,
        slot: SlotLease,
    ) -> None:
        self.paths = paths
        self._turn = TurnContext(services, paths, state, held)
        self._turn.callbacks = options.extensions.session_callbacks(services, paths)
        self.callbacks = TurnCallbacks(
            options.extensions.callbacks, self._turn.callbacks, options.on_event
        )
        self._message = message
        self._content: Content = _as_content(as_prompt(message)) if message else ""
        self._options = options
        self._slot = slot
        self._attempt: Attempt | None = None
        self._away_from_primary = True  # until the primary provider is found
        self._attempts = ExitStack()
        self._began = self._ended = ""
        self._deferred: tuple[dict[str, Any], ...] = ()
        self._notices: tuple[QueuedMessage, ...] = ()
        self.aborted: TurnResult | None = None
        """The result of a turn that was aborted, also where `run` raises."""
        self.abort_reason = ""
        """Why it was."""

    @property
    def state(self) -> AgentState:
        """The agent's state after the last record that the turn read or appended."""
        return self._turn.state

    @property
    def has_started(self) -> bool:
        """Whether the log has its `turn.start`, and not yet its end."""
        return self._turn.has_started

    def run(self) -> TurnResult:
        """Run the turn, record its end, and return the result; a failure is in `error`.

        So is `TurnCancelled`, which a request in the log causes. Raises `NotRecorded` and
        `Uncertain`, `SessionStateError` if the agent was closed before the turn began, and
        `KeyboardInterrupt` or `Terminated` if a signal interrupted this process.
        """
        with self._attempts:
            return self._run()

    def _run(self) -> TurnResult:
        try:
            try:
                output = self._run_attempts()
            finally:
                self._slot.release()
        except (NotRecorded, Uncertain):
            raise  # the disk refuses writes; `restore` ends the turn
        except Exception as error:
            if not self._turn.has_started:
                raise
            failed = _as_agentsdir_error(error)
            if failed is not error:
                failed.__cause__ = error
            return self._fail(failed)
        except BaseException as error:
            if not self._turn.has_started:
                raise
            reason = self.abort_reason = _abort_reason(error)
            self._close_calls()
            aborted = {"reason": reason, **self._spent()}
            self._end("turn.aborted", aborted, "aborted", Ending(aborted=reason))
            self.aborted = self._result("aborted")
            if isinstance(error, TurnCancelled):  # only the turn is cancelled, not this process
                return self.aborted._replace(error=error)
            cancel_below(self._turn.services, self._turn.paths)
            if not isinstance(error, DeadlineExceeded):
                raise
            limit = f"the turn was ended after {self._options.timeout:g} s"
            late = TurnTimeout(limit)
            late.__cause__ = error
            return self.aborted._replace(error=late)
        return self._complete(output)

    def _run_attempts(self) -> TurnOutput:
        """Run the primary provider, then the fallbacks, until one answers (decision D24)."""
        turn, options = self._turn, self._options
        begun, blob = _or_error(self._primary_provider), self._slot.blob
        self._start()
        self._set_up_runner()
        cancel = CancelToken(
            turn.paths, turn.state.position, turn.id, options.timeout, options.on_tick
        )
        errors: list[AgentsdirError] = []
        name = turn.state.session.provider_name
        fallbacks: list[str] | None = None
        while True:
            attempt = self._attempt = Attempt(
                turn,
                self.callbacks.take,
                options.extensions,
                self.callbacks.begin_tick,
                record=options.record,
            )
            self._attempts.callback(attempt.end)
            try:
                if isinstance(begun, AgentsdirError):
                    raise begun
                return attempt.run(begun, self._content_with_handoff(), blob, cancel)
            except (NotRecorded, Uncertain):
                raise
            except Exception as error:
                errors.append(_as_agentsdir_error(error))
                if attempt.has_answered or not handoff.may_fall_back(errors[-1]):
                    raise
                if fallbacks is None:
                    fallbacks = handoff.fallback_providers(turn.services, turn.state)
                if not fallbacks:
                    raise handoff.chain_error(errors, name) from error
            cancel.raise_if_cancelled()
            attempt.supersede()
            before, name = name, fallbacks.pop(0)
            turn.services.notify_user(
                f"{before} gave no answer ({errors[-1].kind}); {name} stands in"
            )
            self._away_from_primary = True
            handoff.log_fallback(turn, before, name, errors[-1], len(errors) + 1)
            begun, blob = _or_error(partial(self._fallback_provider, name)), b""

    def _content_with_handoff(self) -> Content:
        if not self._turn.state.missed:
            return self._content
        return with_handoff(self._turn, self._content)

    def _primary_provider(self) -> TurnProvider:
        """Return the agent's own provider, after its session and the log are in sync."""
        turn = self._turn
        architecture, provider = find_provider(turn.state)
        check_provider(architecture.name, provider, self._options.extensions)
        # Also true if a process died during a fallback.
        self._away_from_primary = turn.state.native["architecture"] != architecture.architecture
        host = self._host(self._mode)
        spec = session_spec(turn.services, turn.paths, turn.state, provider, host)
        self._apply_profile(provider)
        turn.state, spec = sync_with_client(
            turn.services, turn.paths, turn.state, architecture, provider, spec
        )
        return TurnProvider(architecture, provider, spec)

    @property
    def _mode(self) -> str:
        """The mode that overrides the agent's. A message cannot grant more than the default."""
        asked = self._message.get("permissionMode") if self._message else None
        return self._options.permission_mode or (asked if asked in RECORDABLE_MODES else "")

    def _start(self) -> None:
        turn = self._turn
        if self._options.before_start is not None:
            self._options.before_start()
        with turn.writer() as writer:
            check_can_run(writer.state)  # it may have been closed meanwhile
            self._check_waits(writer.state)
            start = {
                "turn_id": turn.id,
                "message_ids": [self._message["messageId"]] if self._message else [],
                "provider": writer.state.session.provider_name,
                "attempt": 1,
            }
            self._began = turn.services.now()
            writer.append("turn.start", start, self._began)
        self.callbacks.begin(turn.id)
        if self._options.on_start is not None:
            self._options.on_start(turn.id)
        if self._message is not None and self._message.get("spawn"):
            self._apply(
                child_started_steps(turn.services.layout, turn.state, self._message["content"])
            )

    def _host(self, mode: str) -> TurnHost:
        """Return what the turn adds to the user's client configuration, in a permission mode."""
        host, runner = self._turn.host(mode), self._options.extensions.runner
        if runner is None or "execute_tool_call" not in overrides(runner):
            return host
        return host._replace(decide=partial(decision_of, runner))

    def _set_up_runner(self) -> None:
        """Have the runner of a session set itself up, once, and record that it has.

        A process that dies in between leaves it to the next turn.
        """
        added, turn = self._options.extensions, self._turn
        if added.runner is None or turn.state.runner:
            return
        session = added.session or LoggedSession(turn.paths)
        with runner_errors(added.runner.name):
            settled(added.runner.on_session_init(session))
        with turn.writer() as writer:
            writer.append("runner.initialized", {"name": added.runner.name}, turn.services.now())

    def _check_waits(self, state: AgentState) -> None:
        """Raise if the message was taken out of the inbox while it waited for a slot."""
        if self._message is not None and not state.pending.has(self._message["messageId"]):
            raise SessionStateError(
                "the message was taken out of the inbox before its turn", kind="dropped"
            )

    def _fallback_provider(self, name: str) -> TurnProvider:
        """Return a fallback provider with a session for this turn."""
        turn = self._turn
        architecture, provider = provider_of(name)
        check_provider(name, provider, self._options.extensions)
        state = handoff.as_fallback_state(turn.state, architecture, provider)
        host = self._host(handoff.fallback_mode(self._mode))
        spec = session_spec(turn.services, turn.paths, state, provider, host)
        self._apply_profile(provider, anew=True)
        return TurnProvider(architecture, provider, spec._replace(turn=state.counters["turns"]))

    def _apply_profile(self, provider: Provider, *, anew: bool = False) -> None:
        turn = self._turn
        if turn.state.profile:
            apply_profile(turn.services, turn.paths, turn.state, provider, anew=anew)

    def _close_calls(self) -> None:
        """Log a result for each open tool call: no result will come."""
        turn = self._turn
        with turn.writer():
            pass  # reads the records of other processes
        self._apply(open_call_steps(turn.paths, turn.id, UNFINISHED_CALL))

    def _fail(self, failed: AgentsdirError) -> TurnResult:
        kind = jsontext.clean(failed.kind, set()) or ProviderError.kind
        message = jsontext.clean(failed.message, set()) or "no reason was given"
        self._close_calls()
        failure = {"kind": kind, "message": message, **self._spent()}
        self._end("turn.error", failure, "failed", Ending(kind, message))
        return self._result("failed")._replace(error=failed)

    def _complete(self, output: TurnOutput) -> TurnResult:
        done: dict[str, Any] = output._asdict()
        cost = done.pop("cost")
        if cost is not None:
            done["cost_usd"] = cost
        self._end("turn.complete", done, "completed", Ending(text=output.response))
        return self._result("completed")._replace(**output._asdict(), deferred=self._deferred)

    def _result(self, outcome: str) -> TurnResult:
        message_id = self._message["messageId"] if self._message else None
        recorded = self._options.record
        return TurnResult(
            message_id,
            self._turn.id,
            outcome,
            "",
            None,
            None,
            recorded=recorded,
            notices=self._notices,
            denials=tuple(self._turn.denials),
            duration_ms=milliseconds(self._began, self._ended),
            tools_used=self._attempt.tools_used if self._attempt else {},
        ).of_agent(self.state)

    def _spent(self) -> dict[str, Any]:
        """Return the usage and the cost of a turn without an answer, as far as they are known."""
        usage, cost = self._attempt.spent if self._attempt else (None, None)
        known = {"usage": usage, "cost_usd": cost}
        return {name: value for name, value in known.items() if value is not None}

    def _end(self, event: str, data: dict[str, Any], outcome: str, ending: Ending) -> None:
        """Record the end, queue the notices, and mark the message as delivered, in this order.

        Signals are blocked meanwhile; all of it is short.
        """
        with undisturbed():
            self._record_end(event, data, outcome, ending)
        # Processes that still run are ended by the next holder.
        self._turn.clear_note()

    def _return_to_primary(self) -> None:
        """Log the change back to the native session of the primary provider."""
        turn = self._turn
        if (back := return_to_primary(turn.paths, turn.state)) is not None:
            with turn.writer() as writer:
                writer.append("native.changed", back, turn.services.now())

    def _record_end(self, event: str, data: dict[str, Any], outcome: str, ending: Ending) -> None:
        turn, services = self._turn, self._turn.services
        with turn.writer() as writer:
            # The program may defer more work until the end is in the log, but not afterwards.
            found = writer.state.open_turn
            self._deferred = tuple(found["deferred"]) if found else ()
            steps = self._completion_steps(writer.state, ending)
            self._ended = services.now()
            writer.append(event, {"turn_id": turn.id, **data}, self._ended)
            if not steps and not self._away_from_primary:
                self._deliver(writer, outcome)
                return
        if self._away_from_primary:
            self._return_to_primary()
        self._apply(steps)
        with turn.writer() as writer:
            self._deliver(writer, outcome)

    def _completion_steps(self, state: AgentState, ending: Ending) -> list[Step]:
        if ending.needs_no_notice(state, self._message):
            return []
        turn = self._turn
        layout, reports = turn.services.layout, self._options.reports
        steps = completion_steps(layout, state, turn.id, self._message, ending, reports=reports)
        self._notices = tuple(queued_by(steps))
        return steps

    def _apply(self, steps: list[Step]) -> None:
        """Apply steps, to this log or to those of other agents."""
        turn = self._turn
        for step in steps:
            turn.state = apply_step(turn.services, turn.paths, turn.state, step)

    def _deliver(self, writer: AgentWriter, outcome: str) -> None:
        if self._message is not None:
            delivered = {"message_id": self._message["messageId"], "outcome": outcome}
            writer.append("message.delivered", delivered, self._turn.services.now())


def _or_error(make: Callable[[], TurnProvider]) -> TurnProvider | AgentsdirError:
    """Return a provider, or the error with which the turn then fails.

    If the error were raised before the turn starts, the message would stay queued and fail again.
    """
    try:
        return make()
    except (NotRecorded, Uncertain):
        raise
    except AgentsdirError as error:
        return error


def _as_agentsdir_error(error: Exception) -> AgentsdirError:
    return error if isinstance(error, AgentsdirError) else crashed(error)


def _abort_reason(error: BaseException) -> str:
    """Return the `reason` of a `turn.aborted`."""
    if isinstance(error, DeadlineExceeded):
        return "timeout"
    return error.reason if isinstance(error, TurnCancelled) else "interrupt"


def _as_content(content: list[dict[str, Any]]) -> Content:
    """Return a prompt; one that is a single text part as a plain string."""
    if len(content) == 1 and content[0].get("type") == "text" and "text" in content[0]:
        return str(content[0]["text"])
    return content
