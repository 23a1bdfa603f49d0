"""One turn, from the sync before it to its end in the log (decisions D13, D16, D24 and D25)."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.contract import RECORDABLE_MODES
from agentsdir.engine.attempts import Attempt, Runner
from agentsdir.engine.endings import Ending, TurnResult
from agentsdir.engine.hearing import AskedToEnd, Ear, TimedOut
from agentsdir.engine.inbox import presented
from agentsdir.engine.open_turn import OpenTurn
from agentsdir.engine.provider_sessions import (
    crashed,
    find_provider,
    provider_of,
    session_spec,
)
from agentsdir.engine.syncing import catch_up
from agentsdir.formats import jsontext
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.states import SessionState, check_transition
from agentsdir.formats.errors import (
    AgentsdirError,
    NotRecorded,
    ProviderError,
    TurnTimeout,
    Uncertain,
)
from agentsdir.formats.undisturbed import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.adapters.contract import Content
    from agentsdir.adapters.sides import Provider
    from agentsdir.engine.attempts import Said
    from agentsdir.engine.endings import Told
    from agentsdir.engine.steps import Step
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.agent import AgentWriter
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState
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
        world: World,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        message: dict[str, Any] | None,
        sender: Sender,
        slot: Slot,
    ) -> None:
        self._turn = OpenTurn(world, paths, state, held)
        self._message = message
        self._content: Content = _plain(presented(message)) if message else ""
        self._sender = sender
        self._slot = slot
        self._attempt: Attempt | None = None
        self._is_abroad = True  # for all that is known: perhaps its provider is missing
        self._attempts = ExitStack()
        self._deferred: tuple[dict[str, Any], ...] = ()
        self._told: tuple[Told, ...] = ()

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
                said = self._be_answered()
            finally:
                self._slot.release()
        except (NotRecorded, Uncertain):
            raise  # the disk refuses, so nothing more is written; `restore` ends the turn
        except Exception as error:
            if not self._turn.has_started:
                raise
            failed = _as_ours(error)
            if failed is not error:
                failed.__cause__ = error
            return self._fail(failed)
        except BaseException as error:
            if not self._turn.has_started:
                raise
            reason = _reason(error)
            self._close_calls()
            aborted = {"reason": reason, **self._spent()}
            self._end("turn.aborted", aborted, "aborted", Ending(aborted=reason))
            if isinstance(error, AskedToEnd):  # the turn was, and not what its process does next
                return self._result("aborted")._replace(error=error)
            from agentsdir.engine.interrupts import pass_on

            pass_on(self._turn.world, self._turn.paths)
            if not isinstance(error, TimedOut):
                raise
            limit = f"the turn was ended after {self._sender.timeout:g} s"
            late = TurnTimeout(limit)
            late.__cause__ = error
            return self._result("aborted")._replace(error=late)
        return self._complete(said)

    def _be_answered(self) -> Said:
        """Have the agent's provider answer, else one that stands in for it (decision D24)."""
        turn, sender = self._turn, self._sender
        begun, blob = _refusable(self._own), self._slot.blob
        self._start()
        ear = Ear(turn.paths, turn.state.position, turn.id, sender.timeout)
        errors: list[AgentsdirError] = []
        name = turn.state.session.provider_name
        stand_ins: list[str] | None = None
        while True:
            attempt = self._attempt = Attempt(turn, sender.on_event, record=sender.record)
            self._attempts.callback(attempt.end)
            try:
                if isinstance(begun, AgentsdirError):
                    raise begun
                return attempt.run(begun, self._untold_content(), blob, ear)
            except (NotRecorded, Uncertain):
                raise
            except Exception as error:
                from agentsdir.engine import fallback

                errors.append(_as_ours(error))
                if attempt.has_answered or not fallback.may_stand_in(errors[-1]):
                    raise
                if stand_ins is None:
                    stand_ins = fallback.stand_ins(turn.world, turn.state)
                if not stand_ins:
                    raise fallback.worst(errors, name) from error
            ear.heed()
            attempt.give_up()
            before, name = name, stand_ins.pop(0)
            turn.world.tell(f"{before} gave no answer ({errors[-1].kind}); {name} stands in")
            self._is_abroad = True
            fallback.hand_over(turn, before, name, errors[-1], len(errors) + 1)
            begun, blob = _refusable(partial(self._stand_in, name)), b""

    def _untold_content(self) -> Content:
        if not self._turn.state.missed:
            return self._content
        from agentsdir.engine.untold import with_untold

        return with_untold(self._turn, self._content)

    def _own(self) -> Runner:
        """Return the agent's own provider, its session brought level with the log."""
        turn = self._turn
        architecture, provider = find_provider(turn.state)
        # So it is where a process died before it was back.
        self._is_abroad = turn.state.native["architecture"] != architecture.architecture
        host = turn.host(self._mode)
        spec = session_spec(turn.world, turn.paths, turn.state, provider, host)
        self._apply_profile(provider)
        turn.state, spec = catch_up(
            turn.world, turn.paths, turn.state, architecture, provider, spec
        )
        return Runner(architecture, provider, spec)

    @property
    def _mode(self) -> str:
        """What goes before the agent's own mode; no log can grant more than a client's default."""
        asked = self._message.get("permissionMode") if self._message else None
        return self._sender.permission_mode or (asked if asked in RECORDABLE_MODES else "")

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
            writer.append("turn.start", start, turn.world.now())
        if self._message is not None and self._message.get("spawn"):
            from agentsdir.engine.spawning.telling import begun_steps

            self._take(begun_steps(turn.world.layout, turn.state, self._message["content"]))

    def _stand_in(self, name: str) -> Runner:
        """Return who runs the turn in place of the agent's own provider."""
        from agentsdir.engine import fallback

        turn = self._turn
        architecture, provider = provider_of(name)
        state = fallback.as_run_by(turn.state, architecture, provider)
        host = turn.host(fallback.mode_abroad(self._mode))
        spec = session_spec(turn.world, turn.paths, state, provider, host)
        self._apply_profile(provider, anew=True)
        return Runner(architecture, provider, spec._replace(turn=state.counters["turns"]))

    def _apply_profile(self, provider: Provider, *, anew: bool = False) -> None:
        turn = self._turn
        if turn.state.profile:
            from agentsdir.engine.profiles import apply_profile

            apply_profile(turn.world, turn.paths, turn.state, provider, anew=anew)

    def _close_calls(self) -> None:
        """Answer the calls that will not return any more."""
        from agentsdir.engine.crashes import open_call_steps

        turn = self._turn
        with turn.writer():
            pass  # the turn knows what others have logged
        self._take(open_call_steps(turn.paths, turn.id, CUT_SHORT))

    def _fail(self, failed: AgentsdirError) -> TurnResult:
        kind = jsontext.clean(failed.kind, set()) or ProviderError.kind
        message = jsontext.clean(failed.message, set()) or "no reason was given"
        self._close_calls()
        failure = {"kind": kind, "message": message, **self._spent()}
        self._end("turn.error", failure, "failed", Ending(kind, message))
        return self._result("failed")._replace(error=failed)

    def _complete(self, said: Said) -> TurnResult:
        done: dict[str, Any] = said._asdict()
        cost = done.pop("cost")
        if cost is not None:
            done["cost_usd"] = cost
        self._end("turn.complete", done, "completed", Ending(text=said.response))
        return self._result("completed")._replace(**said._asdict(), deferred=self._deferred)

    def _result(self, outcome: str) -> TurnResult:
        message_id = self._message["messageId"] if self._message else None
        recorded = self._sender.record
        return TurnResult(
            message_id,
            self._turn.id,
            outcome,
            "",
            None,
            None,
            recorded=recorded,
            told=self._told,
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

    def _go_back(self) -> None:
        """Have the agent go on in the native session of its own provider."""
        from agentsdir.engine.native_changes import way_back

        turn = self._turn
        if (back := way_back(turn.paths, turn.state)) is not None:
            with turn.writer() as writer:
                writer.append("native.changed", back, turn.world.now())

    def _record_end(self, event: str, data: dict[str, Any], outcome: str, ending: Ending) -> None:
        turn, world = self._turn, self._turn.world
        with turn.writer() as writer:
            # Until the end is in the log its program may ask for more, and not afterwards.
            found = writer.state.open_turn
            self._deferred = tuple(found["deferred"]) if found else ()
            steps = self._aftermath(writer.state, ending)
            writer.append(event, {"turn_id": turn.id, **data}, world.now())
            if not steps and not self._is_abroad:
                self._deliver(writer, outcome)
                return
        if self._is_abroad:
            self._go_back()
        self._take(steps)
        with turn.writer() as writer:
            self._deliver(writer, outcome)

    def _aftermath(self, state: AgentState, ending: Ending) -> list[Step]:
        if ending.is_read_here(state, self._message):
            return []
        from agentsdir.engine.aftermath import aftermath, told_by

        turn = self._turn
        steps = aftermath(turn.world.layout, state, turn.id, self._message, ending)
        self._told = tuple(told_by(steps))
        return steps

    def _take(self, steps: list[Step]) -> None:
        """Append what some steps are to append, here or in other logs."""
        from agentsdir.engine.steps import take_step

        turn = self._turn
        for step in steps:
            turn.state = take_step(turn.world, turn.paths, turn.state, step)

    def _deliver(self, writer: AgentWriter, outcome: str) -> None:
        if self._message is not None:
            delivered = {"message_id": self._message["messageId"], "outcome": outcome}
            writer.append("message.delivered", delivered, self._turn.world.now())


def _refusable(make: Callable[[], Runner]) -> Runner | AgentsdirError:
    """Return a runner, or why there is none: the turn fails of that, and is over.

    A session that cannot go on would refuse the same message again and again.
    """
    try:
        return make()
    except (NotRecorded, Uncertain):
        raise
    except AgentsdirError as error:
        return error


def _as_ours(error: Exception) -> AgentsdirError:
    return error if isinstance(error, AgentsdirError) else crashed(error)


def _reason(error: BaseException) -> str:
    """Return why a turn was aborted, for the record."""
    if isinstance(error, TimedOut):
        return "timeout"
    return error.reason if isinstance(error, AskedToEnd) else "interrupt"


def _plain(content: list[dict[str, Any]]) -> Content:
    """Return a prompt of one text part as that text."""
    if len(content) == 1 and content[0].get("type") == "text" and "text" in content[0]:
        return str(content[0]["text"])
    return content
