"""One turn, from the sync before it to its end in the log (decisions D13, D16 and D20).

Each block is durable before the next one is asked for. What the transcripts show at the end and the
stream did not is logged before the turn is over.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from agentsdir.adapters.contract import (
    Architecture,
    Content,
    Decision,
    Process,
    ProgramProvider,
    Provider,
    ProviderSession,
    SessionSpec,
)
from agentsdir.engine.aftermath import Ending, Told, aftermath, told_by
from agentsdir.engine.crashes import open_call_steps
from agentsdir.engine.hearing import AskedToEnd, Ear
from agentsdir.engine.holding import has_leftovers, this_process
from agentsdir.engine.inbox import presented
from agentsdir.engine.interrupts import pass_on
from agentsdir.engine.profiles import apply_profile
from agentsdir.engine.provider_sessions import (
    TurnHost,
    crashed,
    find_provider,
    open_provider,
    provider_errors,
    session_spec,
)
from agentsdir.engine.recording import Recording
from agentsdir.engine.resetting import change_native
from agentsdir.engine.results import TurnResult
from agentsdir.engine.steps import take_step
from agentsdir.engine.syncing import (
    catch_up,
    log_block,
    name_transcripts,
    new_blocks,
    store_transcripts,
)
from agentsdir.engine.transcript_blocks import Logged
from agentsdir.engine.world import World
from agentsdir.formats import jsontext
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import AgentWriter, write_agent
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.states import SessionState, check_transition
from agentsdir.formats.directory.turn_notes import Started, TurnNote, clear_note, write_note
from agentsdir.formats.errors import (
    AgentsdirError,
    HookFailed,
    NotRecorded,
    ProviderError,
    Uncertain,
)
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN, Block, check_block
from agentsdir.formats.reading.reducer import Reducer
from agentsdir.formats.reading.usage import BELIEVABLE, as_usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.adapters.contract import ToolRequest
    from agentsdir.formats.reading.stream import StreamEvent

CUT_SHORT = "The turn ended before this call returned."


class Slot(NamedTuple):
    """What a session has while it works: the blob of the suspension that ended, and a way back.

    `release` is called when the provider is not needed any more, however the turn goes.
    """

    blob: bytes = b""
    release: Callable[[], None] = lambda: None


class Sender(NamedTuple):
    """What the sender of a message wants of its turn.

    `on_event` is called with each stream event; `record` keeps them; `permission_mode` goes before
    what the agent or the user's configuration say.
    """

    on_event: Callable[[StreamEvent], None]
    record: bool = False
    permission_mode: str = ""


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
        world: World,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        message: dict[str, Any] | None,
        sender: Sender,
        slot: Slot,
    ) -> None:
        self._world = world
        self._paths = paths
        self._state = state
        self._held = held
        self._message = message
        self._content: Content = _plain(presented(message)) if message else ""
        self._slot = slot
        self._sender = sender
        self._id = world.ids.agent()
        self._reducer = Reducer()
        self._logged = Logged()
        self._recording = Recording(world, paths, wanted=sender.record)
        self._process: Process | None = None
        self._deferred: tuple[dict[str, Any], ...] = ()
        self._told: tuple[Told, ...] = ()

    @property
    def state(self) -> AgentState:
        """The agent's, as of the last record that was read or appended here."""
        return self._state

    def run(self) -> TurnResult:
        """Run the turn and record its end, whatever it is; a failure is in the result.

        So is the exception of whoever asked the turn to end, and not its process. Raises
        `NotRecorded` and `Uncertain`, `SessionStateError` when the agent was closed before
        the turn began, and the exception of whoever interrupts it.
        """
        with self._recording:
            return self._run()

    def _run(self) -> TurnResult:
        try:
            try:
                architecture, provider, spec = self._begin()
                with open_provider(self._world, provider, spec, self._slot.blob) as session:
                    self._converse(session, architecture, provider)
            finally:
                self._slot.release()
        except (NotRecorded, Uncertain):
            raise  # the disk refuses, so nothing more is written; `restore` ends the turn
        except Exception as error:
            if not self._started:
                raise
            failed = error if isinstance(error, AgentsdirError) else crashed(error)
            failure = {
                "kind": jsontext.clean(failed.kind, set()) or ProviderError.kind,
                "message": jsontext.clean(failed.message, set()) or "no reason was given",
            }
            self._close_calls()
            ending = Ending(failure["kind"], failure["message"])
            self._end("turn.error", {**failure, **self._spent(known=True)}, "failed", ending)
            failed.__cause__ = error
            return self._ended("failed")._replace(error=failed)
        except BaseException as error:
            if not self._started:
                raise
            return self._aborted(error)
        result = self._result()
        done = {"response": result.response, "stop_reason": result.stop_reason, **self._spent()}
        self._end("turn.complete", done, "completed", Ending(text=result.response))
        return result._replace(deferred=self._deferred, told=self._told)

    def _aborted(self, error: BaseException) -> TurnResult:
        """Record that the turn was interrupted, from here or by a request in its log."""
        asked = isinstance(error, AskedToEnd)
        reason = error.reason if isinstance(error, AskedToEnd) else "interrupt"
        self._close_calls()
        aborted = {"reason": reason, **self._spent(known=True)}
        self._end("turn.aborted", aborted, "aborted", Ending(reason))
        if not asked:
            pass_on(self._world, self._paths)
            raise error
        return self._ended("aborted")._replace(error=error)

    def _begin(self) -> tuple[Architecture, Provider, SessionSpec]:
        """Bring log and client level, then start the turn; a refusal fails the turn.

        A session that cannot go on would refuse the same message again and again.
        """
        refusal: AgentsdirError | None = None
        try:
            architecture, provider = find_provider(self._state)
            host = TurnHost(
                self._id, self._sender.permission_mode, self._confirm, self._began, self._named
            )
            spec = session_spec(self._world, self._paths, self._state, provider, host)
            self._recording.provisional = provider.runs_program
            apply_profile(self._world, self._paths, self._state, provider)
            self._state, spec = catch_up(
                self._world, self._paths, self._state, architecture, provider, spec
            )
        except (NotRecorded, Uncertain):
            raise
        except AgentsdirError as error:
            refusal = error
        self._start()
        if refusal is not None:
            raise refusal
        return architecture, provider, spec

    def _start(self) -> None:
        with self._writer() as writer:
            check_can_run(writer.state)  # somebody may have closed it
            start = {
                "turn_id": self._id,
                "message_ids": [self._message["messageId"]] if self._message else [],
                "provider": writer.state.session.provider_name,
                "attempt": 1,
            }
            writer.append("turn.start", start, self._world.now())

    @property
    def _started(self) -> bool:
        """Whether this turn has its turn.start in the log."""
        turn = self._state.open_turn
        return turn is not None and turn["turnId"] == self._id

    def _converse(
        self, session: ProviderSession, architecture: Architecture, provider: Provider
    ) -> None:
        """Take the provider's events to their end, and keep what it leaves."""
        ear = Ear(self._paths, self._state.position, self._id)
        try:
            with ear.listening():
                for event in session.send(self._content):
                    self._take(event)
        except (NotRecorded, Uncertain):
            raise
        except BaseException as error:
            if not isinstance(error, Exception):
                self._wind_down(session, ear)
            self._keep(session, architecture, provider)
            raise
        self._keep(session, architecture, provider)

    def _wind_down(self, session: ProviderSession, ear: Ear) -> None:
        """Have an interrupted provider end in its own way; a second interrupt stops it at once."""
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
        if event["type"] == "metadata_update" and "usage" in event["metadata"]:
            event = {**event, "metadata": {**event["metadata"]}}
            event["metadata"]["usage"] = as_usage(event["metadata"]["usage"])
        if event["type"] == "block_complete":
            event = {**event, "block": self._log(event["block"])}
        self._show(event)

    def _log(self, block: Block) -> Block:
        """Log a completed block; return it as it was logged."""
        check_block(block)
        with self._writer() as writer:
            block = log_block(writer, self._id, block, self._world.now())
        self._logged.add(block)
        return block

    def _show(self, event: StreamEvent) -> None:
        self._reducer.apply(event)
        self._recording.take(event, self._state)
        self._sender.on_event(event)

    def _keep(
        self, session: ProviderSession, architecture: Architecture, provider: Provider
    ) -> None:
        """Keep what the provider left: its transcripts, what they show, the stream."""
        program = provider.runs_program
        with provider_errors():
            natives = session.transcripts()
        with self._writer() as writer:
            if isinstance(provider, ProgramProvider):
                changed = store_transcripts(writer, natives, partial(provider.goes_on, ours=True))
            else:
                changed = store_transcripts(writer, natives)
        added = []
        if any(synced.rewritten for synced in changed):
            self._logged = Logged.of_log(self._paths)  # none of its rows is where it was
        if program:
            for block in new_blocks(architecture, natives, changed, self._logged):
                added.append(self._log(block))
                self._show(stream.block_complete(block["id"], added[-1]))
        for handle, block in self._reducer.open_blocks:
            if not any(_says_it_all(shown, block) for shown in added):
                self._take(stream.block_complete(handle, block))
        with self._writer() as writer:
            self._recording.sync(writer)
            name_transcripts(writer, changed, self._world.now())
        self._recording.is_spent = True

    def _ended(self, outcome: str) -> TurnResult:
        message_id = self._message["messageId"] if self._message else None
        return TurnResult(message_id, self._id, outcome, "", None, None, told=self._told)

    def _close_calls(self) -> None:
        """Answer the calls that will not return any more."""
        with self._writer() as writer:
            state = writer.state
        for step in open_call_steps(self._paths, self._id, CUT_SHORT):
            state = take_step(self._world, self._paths, state, step)
        self._state = state

    def _result(self) -> TurnResult:
        said = [b for b in self._reducer.blocks(MAIN) if not b.get("superseded")]
        texts = [b["content"] for b in said if b["type"] == "assistant_text"]
        metadata = self._metadata
        return TurnResult(
            self._message["messageId"] if self._message else None,
            self._id,
            "completed",
            jsontext.clean("\n\n".join(texts), set()),
            jsontext.clean(str(metadata.get("stopReason") or "end_turn"), set()),
            metadata.get("usage"),
            recorded=self._recording.wanted,
            cost=self._cost,
        )

    @property
    def _metadata(self) -> dict[str, Any]:
        return self._reducer.metadata.get(MAIN, {})

    def _spent(self, *, known: bool = False) -> dict[str, Any]:
        """Return the tokens, and what the client says that they cost.

        Args:
            known: leave out what nobody said.
        """
        usage, cost = self._metadata.get("usage"), self._cost
        said = {} if known and usage is None else {"usage": usage}
        return said if cost is None else {**said, "cost_usd": cost}

    @property
    def _cost(self) -> float | None:
        cost = self._metadata.get("costUsd")
        return cost if isinstance(cost, int | float) and 0 <= cost <= BELIEVABLE else None

    def _end(self, event: str, data: dict[str, Any], outcome: str, ending: Ending) -> None:
        """Record the end, tell whoever waits for it, and settle the message, in this order."""
        world, paths = self._world, self._paths
        with self._writer() as writer:
            turn = writer.state.open_turn
            self._deferred = tuple(turn["deferred"]) if turn else ()
        steps = aftermath(world.layout, self._state, self._id, self._message, ending)
        with self._writer() as writer:
            writer.append(event, {"turn_id": self._id, **data}, world.now())
        for step in steps:
            self._state = take_step(world, paths, self._state, step)
        self._told = tuple(told_by(steps))
        if self._message is not None:
            with self._writer() as writer:
                delivered = {"message_id": self._message["messageId"], "outcome": outcome}
                writer.append("message.delivered", delivered, world.now())
        # What could not be ended, or was left by one who was in a hurry, the next holder ends.
        if self._process is not None and not has_leftovers(self._paths):
            clear_note(self._held)

    def _began(self, process: Process) -> None:
        """Note whose program runs now, for whoever finds this process dead (decision D14)."""
        write_note(self._held, TurnNote(self._id, this_process(), Started(*process)))
        self._process = process

    def _named(self, native_id: str) -> None:
        """Log at once under which id the client's session is: nothing else would find it again."""
        if native_id != self._state.native["id"]:
            with self._writer() as writer:
                change_native(writer, native_id, "named", self._world.now())

    def _confirm(self, ask: Callable[[ToolRequest], Decision], request: ToolRequest) -> Decision:
        """Have a tool call confirmed; a hook that fails denies it, and the log has why."""
        try:
            return ask(request)
        except HookFailed as failed:
            with self._writer() as writer:
                said = jsontext.clean({"hook": failed.hook, "message": failed.message}, set())
                writer.append("hook.failed", said, self._world.now())
            return Decision(allowed=False, reason=failed.message)

    @contextmanager
    def _writer(self) -> Iterator[AgentWriter]:
        """Write on from the state this turn already knows, as long as the turn is ours."""
        self._held.check()
        with write_agent(self._paths, disk=self._world.disk, known=self._state) as writer:
            self._state = writer.state
            yield writer


def _says_it_all(shown: Block, block: Block) -> bool:
    """Tell whether a block of the transcript is what the stream only began."""
    same = all(shown.get(name) == block.get(name) for name in ("type", "conversationId"))
    text, begun = shown.get("content"), block.get("content")
    return same and isinstance(text, str) and isinstance(begun, str) and text.startswith(begun)


def _plain(content: list[dict[str, Any]]) -> Content:
    """Return a prompt of one text part as that text."""
    if len(content) == 1 and content[0].get("type") == "text" and "text" in content[0]:
        return str(content[0]["text"])
    return content
