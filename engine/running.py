"""One turn, from the sync before it to its end in the log (decisions D13, D16, D24 and D25)."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from agentsdir.adapters.contract import Content
from agentsdir.engine import fallback
from agentsdir.engine.attempts import Attempt, Runner, Said
from agentsdir.engine.crashes import open_call_steps
from agentsdir.engine.native_changes import way_back
from agentsdir.engine.open_turn import OpenTurn
from agentsdir.engine.profiles import apply_profile
from agentsdir.engine.provider_sessions import (
    crashed,
    find_provider,
    provider_of,
    session_spec,
    suspension_blob,
)
from agentsdir.engine.recording import Recording
from agentsdir.engine.results import TurnResult
from agentsdir.engine.steps import take_step
from agentsdir.engine.syncing import catch_up
from agentsdir.engine.untold import with_untold
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
        self._recordings = ExitStack()

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
        with self._recordings:
            return self._run()

    def _run(self) -> TurnResult:
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
        except BaseException:
            if self._turn.has_started:
                self._close_calls()
                self._end("turn.aborted", {"reason": "interrupt", **self._spent()}, "aborted")
            raise
        return self._complete(said)

    def _be_answered(self) -> Said:
        """Have the agent's provider answer, else one that stands in for it (decision D24)."""
        begun = _refusable(self._own)
        self._start()
        errors: list[AgentsdirError] = []
        name = self._turn.state.session.provider_name
        waiting: list[str] | None = None
        while True:
            turn, sender = self._turn, self._sender
            recording = Recording(turn.world, turn.paths, wanted=sender.record)
            self._recordings.enter_context(recording)
            attempt = self._attempt = Attempt(turn, sender.on_event, recording)
            try:
                if isinstance(begun, AgentsdirError):
                    raise begun
                content = with_untold(turn, self._content)
                return attempt.run(begun, content, self._blob, self._since)
            except (NotRecorded, Uncertain):
                raise
            except Exception as error:
                errors.append(_as_ours(error))
                if attempt.has_answered or not fallback.may_stand_in(errors[-1]):
                    raise
                if waiting is None:
                    waiting = fallback.stand_ins(self._turn.world, self._turn.state)
                if not waiting:
                    raise fallback.worst(errors) from error
            attempt.give_up()
            before, name = name, waiting.pop(0)
            fallback.hand_over(self._turn, before, name, errors[-1], len(errors) + 1)
            begun = _refusable(partial(self._stand_in, name))

    def _own(self) -> Runner:
        """Return the agent's own provider, its session brought level with the log."""
        turn = self._turn
        architecture, provider = find_provider(turn.state)
        host = turn.host(self._sender.permission_mode)
        spec = session_spec(turn.world, turn.paths, turn.state, provider, host)
        apply_profile(turn.world, turn.paths, turn.state, provider)
        turn.state, spec = catch_up(
            turn.world, turn.paths, turn.state, architecture, provider, spec
        )
        return Runner(architecture, provider, spec)

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

    def _close_calls(self) -> None:
        """Answer the calls that will not return any more."""
        turn = self._turn
        with turn.writer() as writer:
            state = writer.state
        for step in open_call_steps(turn.paths, turn.id, CUT_SHORT):
            state = take_step(turn.world, turn.paths, state, step)
        turn.state = state

    def _complete(self, said: Said) -> TurnResult:
        done: dict[str, Any] = {
            "response": said.response,
            "stop_reason": said.stop_reason,
            "usage": said.usage,
        }
        if said.cost is not None:
            done["cost_usd"] = said.cost
        self._end("turn.complete", done, "completed")
        return TurnResult(
            self._message_id,
            self._turn.id,
            "completed",
            said.response,
            said.stop_reason,
            said.usage,
            recorded=self._sender.record,
            cost=said.cost,
        )

    def _spent(self) -> dict[str, Any]:
        """Return what a turn that came to nothing cost, as far as anybody said."""
        usage, cost = self._attempt.spent if self._attempt else (None, None)
        said = {"usage": usage, "cost_usd": cost}
        return {name: value for name, value in said.items() if value is not None}

    def _end(self, event: str, data: dict[str, Any], outcome: str) -> None:
        turn = self._turn
        turn.append(event, data)
        if (back := way_back(turn.paths, turn.state)) is not None:
            with turn.writer() as writer:
                writer.append("native.changed", back, turn.world.now())
        with turn.writer() as writer:
            delivered = {"message_id": self._message_id, "outcome": outcome}
            writer.append("message.delivered", delivered, turn.world.now())
        # What could not be ended, or was left by one who was in a hurry, the next holder ends.
        turn.clear_note()


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


def _plain(content: list[dict[str, Any]]) -> Content:
    """Return a prompt of one text part as that text."""
    if len(content) == 1 and content[0].get("type") == "text" and "text" in content[0]:
        return str(content[0]["text"])
    return content
