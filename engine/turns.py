"""One turn: message on disk, `.turn`, turn.start, the provider's stream, turn.complete, unlock.

Decisions D13, D16, D17 and D20: one message, one turn, in log order; a message that a turn has
started is never run again by itself; each block is durable before the next one is asked for.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from agentsdir.adapters.contract import Content, ProviderSession
from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.provider_sessions import (
    crashed,
    open_provider,
    suspension_blob,
    sync_transcripts,
)
from agentsdir.engine.recording import Recording
from agentsdir.engine.results import TurnResult, recorded_result
from agentsdir.engine.world import World
from agentsdir.formats import jsontext
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import AgentWriter, write_agent
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.states import SessionState, check_transition
from agentsdir.formats.errors import (
    AgentsdirError,
    Busy,
    Invalid,
    NotRecorded,
    ProviderError,
    Uncertain,
)
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN, Block, check_block
from agentsdir.formats.reading.reducer import Reducer
from agentsdir.formats.reading.usage import as_usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.formats.reading.stream import StreamEvent


def send(
    world: World,
    paths: AgentPaths,
    content: list[dict[str, Any]],
    on_event: Callable[[StreamEvent], None],
    *,
    wait: float = locks.FOREVER,
    record: bool = False,
) -> TurnResult:
    """Give the agent a message and run its turn.

    Args:
        content: text and image parts.
        on_event: called with each stream event of this message's turn.
        wait: seconds to wait for another turn to end; negative waits for ever.
        record: keep the stream events of this message's turn, if it is run here.

    Raises `SessionStateError` for a terminated session, `Busy` (the message stays queued),
    `ProviderError` when the turn failed (which is recorded), or when this root may start no
    provider (then there is no message either).
    """
    world.check_trust()
    with world.disk.settled():
        return _send(world, paths, content, on_event, wait, record=record)


def _send(
    world: World,
    paths: AgentPaths,
    content: list[dict[str, Any]],
    on_event: Callable[[StreamEvent], None],
    wait: float,
    *,
    record: bool,
) -> TurnResult:
    message_id = world.ids.agent()
    with write_agent(paths, disk=world.disk) as writer:
        _check_can_run(writer.state)
        data = {"message_id": message_id, "sender": "cli", "kind": "user", "content": content}
        writer.append("message.enqueued", data, world.now())
    queued = f"the message stays queued as {message_id}"
    with (
        locks.hold(paths.turn, wait=wait, what=f"agent {paths.id}", hint=queued) as held,
        world.disk.settled(),
    ):
        with write_agent(paths, disk=world.disk) as writer:
            state = writer.state
        state = close_crashed_turn(world, paths, state)
        while any(message["messageId"] == message_id for message in state.pending):
            _check_can_run(state)
            message = state.pending[0]
            mine = message["messageId"] == message_id
            turn = _Turn(
                world,
                paths,
                state,
                held,
                message,
                on_event if mine else _ignore,
                Recording(world, paths, wanted=record and mine),
            )
            if mine:
                return turn.run()
            state = turn.run_quietly()
    return recorded_result(paths, message_id, on_event)


def _check_can_run(state: AgentState) -> None:
    if state.session.state is not SessionState.ACTIVE:
        check_transition(state.session.state, SessionState.ACTIVE, state.agent_id)


def _ignore(_event: StreamEvent) -> None:
    """Another sender's turn is in the log; this command prints its own only."""


class _Turn:
    """One message being worked on, while `.turn` is held."""

    def __init__(
        self,
        world: World,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        message: dict[str, Any],
        on_event: Callable[[StreamEvent], None],
        recording: Recording,
    ) -> None:
        self._world = world
        self._paths = paths
        self._state = state
        self._held = held
        self._message_id: str = message["messageId"]
        self._content: Content = _plain(message["content"])
        self._on_event = on_event
        self._id = world.ids.agent()
        self._reducer = Reducer()
        self._blob = b""
        self._recording = recording

    def run(self) -> TurnResult:
        """Run the turn and record its end, whatever it is."""
        with self._recording:
            return self._run()

    def _run(self) -> TurnResult:
        try:
            self._start()
            with open_provider(self._world, self._paths, self._state, self._blob) as session:
                try:
                    for event in session.send(self._content):
                        self._take(event)
                except (NotRecorded, Uncertain):
                    raise
                except BaseException:
                    self._keep(session)
                    raise
                self._keep(session)
        except (NotRecorded, Uncertain):
            raise  # the disk refuses, so nothing more is written; `restore` ends the turn
        except Exception as error:
            if not self._started:
                raise
            failed = error if isinstance(error, AgentsdirError) else crashed(error)
            failure = {
                "turn_id": self._id,
                "kind": jsontext.clean(failed.kind, set()) or ProviderError.kind,
                "message": jsontext.clean(failed.message, set()) or "no reason was given",
            }
            self._end("turn.error", failure, "failed")
            raise failed from error
        except BaseException:
            if self._started:
                self._end("turn.aborted", {"turn_id": self._id, "reason": "interrupt"}, "aborted")
            raise
        result = self._result()
        done = {
            "turn_id": self._id,
            "response": result.response,
            "stop_reason": result.stop_reason,
            "usage": result.usage,
        }
        self._end("turn.complete", done, "completed")
        return result

    def run_quietly(self) -> AgentState:
        """Run another sender's turn; its failure is in the log, and no business of ours."""
        try:
            self.run()
        except AgentsdirError as error:
            if isinstance(error, (NotRecorded, Uncertain, Busy)):
                raise
        return self._state

    def _start(self) -> None:
        with self._writer() as writer:
            current = writer.state.session.state
            if current is not SessionState.ACTIVE:
                _check_can_run(writer.state)
                # The transition empties the record's blob, which is good for this turn only.
                self._blob = suspension_blob(self._paths)
                change = {"from": current.value, "to": "active", "reason": "send"}
                writer.append("session.state", change, self._world.now())
            start = {
                "turn_id": self._id,
                "message_ids": [self._message_id],
                "provider": writer.state.session.provider_name,
                "attempt": 1,
            }
            writer.append("turn.start", start, self._world.now())

    @property
    def _started(self) -> bool:
        """Whether this turn has its turn.start in the log."""
        turn = self._state.open_turn
        return turn is not None and turn["turnId"] == self._id

    def _take(self, event: StreamEvent) -> None:
        if event["type"] == "metadata_update" and "usage" in event["metadata"]:
            event = {**event, "metadata": {**event["metadata"]}}
            event["metadata"]["usage"] = as_usage(event["metadata"]["usage"])
        if event["type"] == "block_complete":
            event = {**event, "block": self._record(event["block"])}
        self._reducer.apply(event)
        self._recording.take(event, self._state)
        self._on_event(event)

    def _keep(self, session: ProviderSession) -> None:
        """Keep what was streamed of blocks that were not completed, the stream, transcripts."""
        for handle, block in self._reducer.open_blocks:
            self._take(stream.block_complete(handle, block))
        with self._writer() as writer:
            self._recording.sync(writer)
            sync_transcripts(writer, session, self._world.now())

    def _record(self, block: Block) -> Block:
        """Log a completed block; return it as it was logged."""
        check_block(block)
        with self._writer() as writer:
            try:
                writer.append("block", {"turn_id": self._id, "block": block}, self._world.now())
            except Invalid as error:
                if error.kind != "value-refused":
                    raise
                # What a provider says need not round-trip; its transcript keeps the bytes (D6).
                block = jsontext.cleaned(block, depth=3)
                writer.append("block", {"turn_id": self._id, "block": block}, self._world.now())
        return block

    def _result(self) -> TurnResult:
        texts = [b["content"] for b in self._reducer.blocks(MAIN) if b["type"] == "assistant_text"]
        metadata = self._reducer.metadata.get(MAIN, {})
        return TurnResult(
            self._message_id,
            self._id,
            "completed",
            jsontext.clean("\n\n".join(texts), set()),
            jsontext.clean(str(metadata.get("stopReason") or "end_turn"), set()),
            metadata.get("usage"),
            recorded=self._recording.wanted,
        )

    def _end(self, event: str, data: dict[str, Any], outcome: str) -> None:
        with self._writer() as writer:
            writer.append(event, data, self._world.now())
            delivered = {"message_id": self._message_id, "outcome": outcome}
            writer.append("message.delivered", delivered, self._world.now())

    @contextmanager
    def _writer(self) -> Iterator[AgentWriter]:
        """Write on from the state this turn already knows, as long as the turn is ours."""
        self._held.check()
        with write_agent(self._paths, disk=self._world.disk, known=self._state) as writer:
            self._state = writer.state
            yield writer


def _plain(content: list[dict[str, Any]]) -> Content:
    """Return a prompt of one text part as that text."""
    if len(content) == 1 and content[0].get("type") == "text" and "text" in content[0]:
        return str(content[0]["text"])
    return content
