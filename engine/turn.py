"""One turn: from the sync before it to its end in the log (decisions D13, D20, D24)."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.protocol import RECORDABLE_MODES, Decision, program_of
from agentsdir.engine import handoff
from agentsdir.engine.cancel import CancelToken, DeadlineExceeded, TurnCancelled, cancel_below
from agentsdir.engine.handoff import with_handoff
from agentsdir.engine.inbox import as_prompt
from agentsdir.engine.limits import TickCounter, limit_of
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
from agentsdir.engine.result import Denial, Ending, TurnResult
from agentsdir.engine.sync import (
    LoggedBlocks,
    StreamRecording,
    log_block,
    log_transcripts,
    new_blocks,
    store_transcripts,
    sync_with_client,
)
from agentsdir.engine.turn_lock import has_leftovers, this_process
from agentsdir.formats import blocks, jsontext
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
    Terminated,
    TurnTimeout,
    Uncertain,
)
from agentsdir.formats.signals import undisturbed
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.locks import Started, TurnNote, clear_note, write_note
from agentsdir.formats.store.state import SessionState, check_transition
from agentsdir.engine.sync import LoggedBlocks, StreamRecording

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
    from agentsdir.engine.notices import Step
    from agentsdir.engine.result import QueuedMessage
    from agentsdir.engine.services import Services
    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.store import locks
    from agentsdir.formats.store.agent import AgentWriter
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState
    from agentsdir.formats.store.transcripts import Synced


# An open turn as its holder knows it: its log, and the note in `.turn` (decisions D10 and D14).


class TurnContext:
    """One turn, from before its `turn.start` on, while `.turn` is held.

    `state` is the agent's as of the last record that was read or appended here.
    """

    def __init__(
        self, services: Services, paths: AgentPaths, state: AgentState, held: locks.Held
    ) -> None:
        self.services = services
        self.paths = paths
        self.state = state
        self.id = services.ids.agent()
        self._held = held
        self._process: Process | None = None
        self.denials: list[Denial] = []

    @property
    def has_started(self) -> bool:
        """Whether this turn has its turn.start in the log."""
        turn = self.state.open_turn
        return turn is not None and turn["turnId"] == self.id

    @contextmanager
    def writer(self) -> Iterator[AgentWriter]:
        """Write on from the state this turn already knows, as long as the turn is ours."""
        self._held.check()
        # What was said in a turn is not given up because another process is stopped.
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
        """Return what this turn adds to the user's client.

        Args:
            permission_mode: what goes before all that was recorded or configured; empty for none.
        """
        return TurnHost(self.id, permission_mode, self._confirm, self._began, self._named)

    def _began(self, process: Process) -> None:
        """Note whose program runs now, for whoever finds this process dead (decision D14)."""
        write_note(self._held, TurnNote(self.id, this_process(), Started(*process)))
        self._process = process

    def clear_note(self) -> None:
        """Empty `.turn`, unless something still runs that the next holder has to end."""
        if self._process is not None and not has_leftovers(self.paths):
            clear_note(self._held)

    def _named(self, native_id: str) -> None:
        """Log at once under which id the client's session is: nothing else would find it again."""
        if native_id != self.state.native["id"]:
            with self.writer() as writer:
                change_native(writer, native_id, "named", self.services.now())

    def _confirm(self, ask: Callable[[ToolRequest], Decision], request: ToolRequest) -> Decision:
        """Have a tool call confirmed; a hook that fails denies it, and the log has why."""
        try:
            decision = ask(request)
        except HookFailed as failed:
            with self.writer() as writer:
                said = jsontext.clean({"hook": failed.hook, "message": failed.message}, set())
                writer.append("hook.failed", said, self.services.now())
            decision = Decision(allowed=False, reason=failed.message)
        if not decision.allowed:
            self.denials.append(Denial.of(request, decision))
        return decision


# One provider's attempt at a turn, from its first event to what it leaves (decisions D20, D24).
#
# Each block is durable before the next one is asked for. What the transcripts show at the end and
# the stream did not is logged before the attempt is over.

MAX_TICKS = "max_ticks"
_NO_ANSWER = frozenset(kind for kind, row in BLOCKS.items() if row.speaker in ("user", "client"))


class TurnProvider(NamedTuple):
    """Who runs a turn, and what it is told of the session."""

    architecture: Architecture
    provider: Provider
    spec: SessionSpec


class TurnOutput(NamedTuple):
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
        self, turn: TurnContext, on_event: Callable[[StreamEvent], None], *, record: bool
    ) -> None:
        self._turn = turn
        self._on_event = on_event
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
        """Have the provider answer.

        Args:
            blob: what it gave at the suspension that the turn ends; empty for none.
            cancel: hears when the turn is to end.

        Raises `ProviderError` when it does not, kind ``max-ticks`` where it only called tools, and
        what the provider's own metadata says of a failure (docs/behaviour.md, "Failure").
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
            self._save(session, turn_provider)
        return self._result()

    def _take_events(
        self,
        session: ProviderSession,
        turn_provider: TurnProvider,
        content: Content,
        cancel: CancelToken,
    ) -> None:
        """Take the provider's events to their end, or to the limit of model calls."""
        for event in _events(session, content):
            if self._ticks.is_beyond(event):
                self._limited = self._text()
                if turn_provider.provider.runs_program:
                    self._take(event)  # its transcript may have what began
                self._interrupt(session, cancel)
                return
            self._take(event)

    def _interrupt(self, session: ProviderSession, cancel: CancelToken) -> None:
        """Have a provider end in its own way; a second interrupt stops it at once."""
        try:
            with cancel.watching(), provider_errors():
                for event in session.interrupt():
                    self._take(event)
        except (NotRecorded, Uncertain):
            raise
        except BaseException:  # noqa: BLE001, what ended the turn is raised after this
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
        """Keep what the provider left: its transcripts, what they show, the stream."""
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
                self._name(writer, changed)  # nothing more is to come before that
                return
        added = []
        if self._logged is not None:
            if any(synced.rewritten for synced in changed):
                self._logged = self._logged.of_log(turn.paths)  # none of its rows is where it was
            for block in new_blocks(turn_provider.architecture, natives, changed, self._logged):
                added.append(self._log(block))
                self._show(blocks.block_complete(block["id"], added[-1]))
        for handle, block in self._reducer.open_blocks:
            if not any(_completes(shown, block) for shown in added):
                self._take(blocks.block_complete(handle, block))
        with turn.writer() as writer:
            self._name(writer, changed)

    def _name(self, writer: AgentWriter, changed: list[Synced]) -> None:
        """Have the log name what was kept."""
        if self._recording is not None:
            self._recording.sync(writer)
        log_transcripts(writer, changed, self._turn.services.now())
        if self._recording is not None:
            self._recording.is_redundant = True

    def end(self) -> None:
        """Close what was recorded, and remove it if nothing needs it."""
        if self._recording is not None:
            self._recording.end()

    def supersede(self) -> None:
        """Log the blocks again as superseded: another provider answers in this one's place."""
        for block in list(self._blocks.values()):
            given_up = self._turn.log({**block, "superseded": True})
            self._on_event(blocks.block_complete(given_up["id"], given_up))
        self.end()

    def _text(self) -> str:
        said = [b for b in self._reducer.blocks(MAIN) if not b.get("superseded")]
        texts = [b["content"] for b in said if b["type"] == "assistant_text"]
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
    def spent(self) -> tuple[dict[str, Any] | None, float | None]:
        """The tokens, and what the client says that they cost; None for what nobody said."""
        cost = self._metadata.get("costUSD")
        believed = cost if isinstance(cost, int | float) and 0 <= cost <= BELIEVABLE else None
        return self._metadata.get("usage"), believed

    @property
    def _metadata(self) -> dict[str, Any]:
        return self._reducer.metadata.get(MAIN, {})


def _normalized(metadata: dict[str, Any]) -> dict[str, Any]:
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


def _completes(shown: Block, block: Block) -> bool:
    """Tell whether a block of the transcript is what the stream only began."""
    same = all(shown.get(name) == block.get(name) for name in ("type", "conversationId"))
    text, begun = shown.get("content"), block.get("content")
    return same and isinstance(text, str) and isinstance(begun, str) and text.startswith(begun)


# One turn, from the sync before it to its end in the log (decisions D13, D16, D24 and D25).

UNFINISHED_CALL = "The turn ended before this call returned."


class SlotLease(NamedTuple):
    """What a session has while it works: the blob of the suspension that ended, and a way back.

    `release` is called when the provider is not needed any more, however the turn goes.
    """

    blob: bytes = b""
    release: Callable[[], None] = lambda: None


class TurnOptions(NamedTuple):
    """What the sender of a message wants of its turn.

    `on_event` is called with each stream event; `record` keeps them; `permission_mode` goes before
    what the agent or the user's configuration say. After `timeout` seconds the turn is ended; 0
    sets no limit.
    """

    on_event: Callable[[StreamEvent], None]
    record: bool = False
    permission_mode: str = ""
    timeout: float = 0


def check_can_run(state: AgentState) -> None:
    """Raise `SessionStateError` for a session that takes no turns any more."""
    if state.session.state is not SessionState.ACTIVE:
        check_transition(state.session.state, SessionState.ACTIVE, state.agent_id)


class Turn:
    """One message being worked on, or none, while `.turn` is held.

    Args:
        message: as it waits in the inbox; None to have the agent go on by itself.
        slot: what the session has while it works.
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
        self._turn = TurnContext(services, paths, state, held)
        self._message = message
        self._content: Content = _as_content(as_prompt(message)) if message else ""
        self._options = options
        self._slot = slot
        self._attempt: Attempt | None = None
        self._away_from_primary = True  # for all that is known: perhaps its provider is missing
        self._attempts = ExitStack()
        self._deferred: tuple[dict[str, Any], ...] = ()
        self._notices: tuple[QueuedMessage, ...] = ()

    @property
    def state(self) -> AgentState:
        """The agent's, as of the last record that was read or appended here."""
        return self._turn.state

    def run(self) -> TurnResult:
        """Run the turn and record its end, whatever it is; a failure is in the result.

        So is what was raised because its log asked the turn to end. Raises `NotRecorded` and
        `Uncertain`, `SessionStateError` when the agent was closed before the turn began, and the
        exception of whoever interrupts this process.
        """
        with self._attempts:
            return self._run()

    def _run(self) -> TurnResult:
        try:
            try:
                said = self._run_attempts()
            finally:
                self._slot.release()
        except (NotRecorded, Uncertain):
            raise  # the disk refuses, so nothing more is written; `restore` ends the turn
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
            reason = _abort_reason(error)
            self._close_calls()
            aborted = {"reason": reason, **self._spent()}
            self._end("turn.aborted", aborted, "aborted", Ending(aborted=reason))
            if isinstance(error, TurnCancelled):  # the turn was, and not what its process does next
                return self._result("aborted")._replace(error=error)
            cancel_below(self._turn.services, self._turn.paths)
            if not isinstance(error, DeadlineExceeded):
                raise
            limit = f"the turn was ended after {self._options.timeout:g} s"
            late = TurnTimeout(limit)
            late.__cause__ = error
            return self._result("aborted")._replace(error=late)
        return self._complete(said)

    def _run_attempts(self) -> TurnOutput:
        """Have the agent's provider answer, else one that stands in for it (decision D24)."""
        turn, options = self._turn, self._options
        begun, blob = _or_error(self._primary_provider), self._slot.blob
        self._start()
        cancel = CancelToken(turn.paths, turn.state.position, turn.id, options.timeout)
        errors: list[AgentsdirError] = []
        name = turn.state.session.provider_name
        fallbacks: list[str] | None = None
        while True:
            attempt = self._attempt = Attempt(turn, options.on_event, record=options.record)
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
        """Return the agent's own provider, its session brought level with the log."""
        turn = self._turn
        architecture, provider = find_provider(turn.state)
        # So it is where a process died before it was back.
        self._away_from_primary = turn.state.native["architecture"] != architecture.architecture
        host = turn.host(self._mode)
        spec = session_spec(turn.services, turn.paths, turn.state, provider, host)
        self._apply_profile(provider)
        turn.state, spec = sync_with_client(
            turn.services, turn.paths, turn.state, architecture, provider, spec
        )
        return TurnProvider(architecture, provider, spec)

    @property
    def _mode(self) -> str:
        """What goes before the agent's own mode; no log can grant more than a client's default."""
        asked = self._message.get("permissionMode") if self._message else None
        return self._options.permission_mode or (asked if asked in RECORDABLE_MODES else "")

    def _start(self) -> None:
        turn = self._turn
        with turn.writer() as writer:
            check_can_run(writer.state)  # somebody may have closed it
            start = {
                "turn_id": turn.id,
                "message_ids": [self._message["messageId"]] if self._message else [],
                "provider": writer.state.session.provider_name,
                "attempt": 1,
            }
            writer.append("turn.start", start, turn.services.now())
        if self._message is not None and self._message.get("spawn"):
            self._take(
                child_started_steps(turn.services.layout, turn.state, self._message["content"])
            )

    def _fallback_provider(self, name: str) -> TurnProvider:
        """Return who runs the turn in place of the agent's own provider."""
        turn = self._turn
        architecture, provider = provider_of(name)
        state = handoff.as_fallback_state(turn.state, architecture, provider)
        host = turn.host(handoff.fallback_mode(self._mode))
        spec = session_spec(turn.services, turn.paths, state, provider, host)
        self._apply_profile(provider, anew=True)
        return TurnProvider(architecture, provider, spec._replace(turn=state.counters["turns"]))

    def _apply_profile(self, provider: Provider, *, anew: bool = False) -> None:
        turn = self._turn
        if turn.state.profile:
            apply_profile(turn.services, turn.paths, turn.state, provider, anew=anew)

    def _close_calls(self) -> None:
        """Answer the calls that will not return any more."""
        turn = self._turn
        with turn.writer():
            pass  # the turn knows what others have logged
        self._take(open_call_steps(turn.paths, turn.id, UNFINISHED_CALL))

    def _fail(self, failed: AgentsdirError) -> TurnResult:
        kind = jsontext.clean(failed.kind, set()) or ProviderError.kind
        message = jsontext.clean(failed.message, set()) or "no reason was given"
        self._close_calls()
        failure = {"kind": kind, "message": message, **self._spent()}
        self._end("turn.error", failure, "failed", Ending(kind, message))
        return self._result("failed")._replace(error=failed)

    def _complete(self, said: TurnOutput) -> TurnResult:
        done: dict[str, Any] = said._asdict()
        cost = done.pop("cost")
        if cost is not None:
            done["cost_usd"] = cost
        self._end("turn.complete", done, "completed", Ending(text=said.response))
        return self._result("completed")._replace(**said._asdict(), deferred=self._deferred)

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
        )

    def _spent(self) -> dict[str, Any]:
        """Return what a turn that came to nothing cost, as far as anybody said."""
        usage, cost = self._attempt.spent if self._attempt else (None, None)
        said = {"usage": usage, "cost_usd": cost}
        return {name: value for name, value in said.items() if value is not None}

    def _end(self, event: str, data: dict[str, Any], outcome: str, ending: Ending) -> None:
        """Record the end, tell whoever waits for it, and settle the message, in this order.

        Signals wait until that is done: all of it is short, and belongs together.
        """
        with undisturbed():
            self._record_end(event, data, outcome, ending)
        # What could not be ended, or was left by one who was in a hurry, the next holder ends.
        self._turn.clear_note()

    def _return_to_primary(self) -> None:
        """Have the agent go on in the native session of its own provider."""
        turn = self._turn
        if (back := return_to_primary(turn.paths, turn.state)) is not None:
            with turn.writer() as writer:
                writer.append("native.changed", back, turn.services.now())

    def _record_end(self, event: str, data: dict[str, Any], outcome: str, ending: Ending) -> None:
        turn, services = self._turn, self._turn.services
        with turn.writer() as writer:
            # Until the end is in the log its program may ask for more, and not afterwards.
            found = writer.state.open_turn
            self._deferred = tuple(found["deferred"]) if found else ()
            steps = self._completion_steps(writer.state, ending)
            writer.append(event, {"turn_id": turn.id, **data}, services.now())
            if not steps and not self._away_from_primary:
                self._deliver(writer, outcome)
                return
        if self._away_from_primary:
            self._return_to_primary()
        self._take(steps)
        with turn.writer() as writer:
            self._deliver(writer, outcome)

    def _completion_steps(self, state: AgentState, ending: Ending) -> list[Step]:
        if ending.needs_no_notice(state, self._message):
            return []
        turn = self._turn
        steps = completion_steps(turn.services.layout, state, turn.id, self._message, ending)
        self._notices = tuple(queued_by(steps))
        return steps

    def _take(self, steps: list[Step]) -> None:
        """Append what some steps are to append, here or in other logs."""
        turn = self._turn
        for step in steps:
            turn.state = apply_step(turn.services, turn.paths, turn.state, step)

    def _deliver(self, writer: AgentWriter, outcome: str) -> None:
        if self._message is not None:
            delivered = {"message_id": self._message["messageId"], "outcome": outcome}
            writer.append("message.delivered", delivered, self._turn.services.now())


def _or_error(make: Callable[[], TurnProvider]) -> TurnProvider | AgentsdirError:
    """Return a turn_provider, or why there is none: the turn fails of that, and is over.

    A session that cannot go on would refuse the same message again and again.
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
    """Return why a turn was aborted, for the record."""
    if isinstance(error, DeadlineExceeded):
        return "timeout"
    return error.reason if isinstance(error, TurnCancelled) else "interrupt"


def _as_content(content: list[dict[str, Any]]) -> Content:
    """Return a prompt of one text part as that text."""
    if len(content) == 1 and content[0].get("type") == "text" and "text" in content[0]:
        return str(content[0]["text"])
    return content
