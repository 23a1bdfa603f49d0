"""One turn, from the sync before it to its end in the log (decisions D13, D16, D24 and D25)."""

from __future__ import annotations

from typing import Any, NamedTuple

from agentsdir.adapters.contract import Content
from agentsdir.engine import fallback
from agentsdir.engine.attempts import Attempt, Runner, Said
from agentsdir.engine.crashes import open_call_steps
from agentsdir.engine.interrupts import TimedOut
from agentsdir.engine.open_turn import OpenTurn
from agentsdir.engine.profiles import apply_profile
from agentsdir.engine.provider_sessions import (
    crashed,
    find_provider,
    provider_of,
    session_spec,
    suspension_blob,
)
from agentsdir.engine.rendering import with_untold
from agentsdir.engine.results import TurnResult
from agentsdir.engine.steps import take_step
from agentsdir.engine.syncing import catch_up
from agentsdir.engine.ticks import Ticks, limit_of
from agentsdir.engine.world import World
from agentsdir.formats import jsontext
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.states import SessionState, check_transition
from agentsdir.formats.errors import (
    AgentsdirError,
    Busy,
    NotRecorded,
    ProviderError,
    Uncertain,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.reading.stream import StreamEvent

CUT_SHORT = "The turn ended before this call returned."


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
    """One message being worked on, while `.turn` is held."""

    def __init__(
        self,
        world: World,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        message: dict[str, Any],
        sender: Sender,
    ) -> None:
        self._turn = OpenTurn(world, paths, state, held)
        self._message_id: str = message["messageId"]
        self._content: Content = _plain(message["content"])
        self._sender = sender
        self._blob = b""
        self._attempt: Attempt | None = None

    def run_quietly(self) -> AgentState:
        """Run another sender's turn; its failure is in the log, and no business of ours."""
        try:
            self.run()
        except AgentsdirError as error:
            if isinstance(error, (NotRecorded, Uncertain, Busy)):
                raise
        return self._turn.state

    def run(self) -> TurnResult:
        """Run the turn and record its end, whatever it is."""
        try:
            said = self._be_answered()
        except (NotRecorded, Uncertain):
            raise  # the disk refuses, so nothing more is written; `restore` ends the turn
        except Exception as error:
            if not self._turn.has_started:
                raise
            failed = _as_ours(error)
            failure = {
                "kind": jsontext.clean(failed.kind, set()) or ProviderError.kind,
                "message": jsontext.clean(failed.message, set()) or "no reason was given",
            }
            self._close_calls()
            self._end("turn.error", {**failure, **self._spent()}, "failed")
            raise failed from error
        except BaseException as error:
            timed_out = isinstance(error, TimedOut)
            if self._turn.has_started:
                self._close_calls()
                reason = "timeout" if timed_out else "interrupt"
                self._end("turn.aborted", {"reason": reason, **self._spent()}, "aborted")
            if not timed_out:
                raise
            limit = f"the turn was ended after {self._sender.timeout:g} seconds"
            raise ProviderError(limit, kind="turn-timeout") from error
        return self._complete(said)

    def _be_answered(self) -> Said:
        """Have the agent's provider answer, else one that stands in for it (decision D24)."""
        runner = self._begin()
        state = self._turn.state
        name, number, errors = state.session.provider_name, 1, list[AgentsdirError]()
        waiting: list[str] | None = None
        while True:
            try:
                if isinstance(runner, AgentsdirError):
                    raise runner
                return self._try(runner or self._stand_in(name))
            except (NotRecorded, Uncertain):
                raise
            except Exception as error:
                errors.append(_as_ours(error))
                tried = self._attempt
                if (tried and tried.has_answered) or not fallback.may_stand_in(errors[-1]):
                    raise
                if waiting is None:
                    waiting = fallback.stand_ins(self._turn.world, state)
                if not waiting:
                    raise fallback.worst(errors) from error
            before, name, runner, number = name, waiting.pop(0), None, number + 1
            if tried is not None:
                tried.give_up()
            fallback.hand_over(self._turn, before, name, errors[-1], number)

    def _begin(self) -> Runner | AgentsdirError:
        """Bring log and client level, then start the turn; return a refusal, which fails it.

        A session that cannot go on would refuse the same message again and again.
        """
        turn = self._turn
        runner: Runner | AgentsdirError
        try:
            architecture, provider = find_provider(turn.state)
            host = turn.host(self._sender.permission_mode)
            spec = session_spec(turn.world, turn.paths, turn.state, provider, host)
            apply_profile(turn.world, turn.paths, turn.state, provider)
            turn.state, spec = catch_up(
                turn.world, turn.paths, turn.state, architecture, provider, spec
            )
            runner = Runner(architecture, provider, spec)
        except (NotRecorded, Uncertain):
            raise
        except AgentsdirError as error:
            runner = error
        self._start()
        return runner

    def _start(self) -> None:
        turn = self._turn
        with turn.writer() as writer:
            current = writer.state.session.state
            if current is not SessionState.ACTIVE:
                check_can_run(writer.state)
                # The transition empties the record's blob, which is good for this turn only.
                self._blob = suspension_blob(turn.paths)
                change = {"from": current.value, "to": "active", "reason": "send"}
                writer.append("session.state", change, turn.world.now())
            start = {
                "turn_id": turn.id,
                "message_ids": [self._message_id],
                "provider": writer.state.session.provider_name,
                "attempt": 1,
            }
            writer.append("turn.start", start, turn.world.now())
        self._since = turn.state.position

    def _stand_in(self, name: str) -> Runner:
        """Return who runs the turn in place of the agent's own provider."""
        turn = self._turn
        self._blob = b""
        architecture, provider = provider_of(name)
        state = fallback.as_run_by(turn.state, architecture, provider)
        host = turn.host(fallback.mode_abroad(self._sender.permission_mode))
        spec = session_spec(turn.world, turn.paths, state, provider, host)
        apply_profile(turn.world, turn.paths, state, provider, anew=True)
        return Runner(architecture, provider, spec._replace(turn=state.counters["turns"]))

    def _try(self, runner: Runner) -> Said:
        turn = self._turn
        limit = limit_of(turn.state.limits, runs_program=runner.provider.runs_program)
        attempt = self._attempt = Attempt(
            turn, self._sender.on_event, record=self._sender.record, ticks=Ticks(limit)
        )
        content = self._content
        return attempt.run(runner, content, self._blob, self._since)

    def _close_calls(self) -> None:
        """Answer the calls that will not return any more."""
        turn = self._turn
        with turn.writer() as writer:
            state = writer.state
        for step in open_call_steps(turn.paths, turn.id, CUT_SHORT):
            state = take_step(turn.world, turn.paths, state, step)
        turn.state = state

    def _complete(self, said: Said) -> TurnResult:
        done = {"response": said.response, "stop_reason": said.stop_reason, "usage": said.usage}
        if said.cost is not None:
            done["cost_usd"] = said.cost
        self._end("turn.complete", done, "completed")
        return TurnResult(
            self._message_id, self._turn.id, "completed", *said[:3], recorded=self._sender.record, cost=said.cost
        )

    def _spent(self) -> dict[str, Any]:
        """Return what a turn that came to nothing cost, as far as anybody said."""
        usage, cost = self._attempt.spent if self._attempt else (None, None)
        said = {"usage": usage, "cost_usd": cost}
        return {name: value for name, value in said.items() if value is not None}

    def _end(self, event: str, data: dict[str, Any], outcome: str) -> None:
        turn = self._turn
        turn.append(event, data)
        if (back := fallback.way_back(turn.paths, turn.state)) is not None:
            with turn.writer() as writer:
                writer.append("native.changed", back, turn.world.now())
        with turn.writer() as writer:
            delivered = {"message_id": self._message_id, "outcome": outcome}
            writer.append("message.delivered", delivered, turn.world.now())
        # What could not be ended, or was left by one who was in a hurry, the next holder ends.
        turn.clear_note()


def _as_ours(error: Exception) -> AgentsdirError:
    return error if isinstance(error, AgentsdirError) else crashed(error)


def _plain(content: list[dict[str, Any]]) -> Content:
    """Return a prompt of one text part as that text."""
    if len(content) == 1 and content[0].get("type") == "text" and "text" in content[0]:
        return str(content[0]["text"])
    return content
