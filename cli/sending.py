"""What `send` does once it is known to whom: in a turn, without waiting, or to the end."""

from __future__ import annotations

from typing import Any, NamedTuple

from agentsdir.cli.environment import Environment
from agentsdir.cli.output import note, print_document, print_json, print_text
from agentsdir.formats.directory import locks
from agentsdir.formats.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentsdir.engine.inbox import Message
    from agentsdir.engine.results import TurnResult
    from agentsdir.engine.turns import Waiting
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths


class Manner(NamedTuple):
    """How a message is sent; the fields are the options of `send`."""

    events: bool = False
    record: bool = False
    permission_mode: str = ""
    timeout: float = 0
    wait: float | None = None
    alone: bool = False
    as_json: bool = False

    @property
    def waiting(self) -> Waiting:
        """A turn is waited for, a slot only when that is asked for."""
        from agentsdir.engine.turns import Waiting

        if self.wait is None:
            return Waiting(locks.FOREVER, 0)
        return Waiting(self.wait, self.wait)

    def told_with(self, message: Message) -> Message:
        """Return a message that says in which mode it is to be run, where a log may ask for it."""
        from agentsdir.adapters.contract import RECORDABLE_MODES

        if self.permission_mode not in RECORDABLE_MODES:
            return message  # it goes for the turn that this command runs, and for no other
        return message._replace(permission_mode=self.permission_mode)


def check_unwatched(manner: Manner) -> None:
    """Refuse what nobody would heed of a turn that this command does not run itself."""
    from agentsdir.adapters.contract import RECORDABLE_MODES

    watched = {
        "--timeout": manner.timeout,
        "--events": manner.events,
        "--record": manner.record,
        "--wait": manner.wait is not None,
        "--permission-mode": manner.permission_mode not in ("", *RECORDABLE_MODES),
    }
    for name in (name for name, given in watched.items() if given):
        raise UsageError(
            f"{name} is for a turn that is waited for; this one is run by somebody else",
            hint="without --no-wait, outside of a turn, it is",
        )


def print_message(
    env: Environment, world: World, paths: AgentPaths, message_id: str, *, as_json: bool
) -> None:
    """Say which message now waits in an inbox."""
    if as_json:
        durability = world.disk.durability.value
        said = {"type": "message", "agentId": paths.id, "messageId": message_id}
        print_json(env, {**said, "durability": durability})
    else:
        print_text(env, message_id + "\n")


def send_in_turn(env: Environment, world: World, paths: AgentPaths, message: Message) -> str:
    """Send from the turn that this command runs in; return the message's id."""
    from agentsdir.engine.in_turn import send_from_turn

    assert env.turn is not None
    sender = world.layout.agent(env.turn.agent_id)
    return send_from_turn(
        world, sender, env.turn.turn_id, paths, message._replace(sender=sender.id)
    )


def send_away(env: Environment, world: World, paths: AgentPaths, message: Message) -> str:
    """Have a process of its own run a message, and return the message's id at once."""
    from agentsdir.engine.inbox import enqueue

    world.check_trust()
    with world.disk.settled():
        message_id = enqueue(world, paths, message)
    start_away(env, world, paths, message_id)
    return message_id


def start_away(env: Environment, world: World, paths: AgentPaths, message_id: str) -> None:
    """Start a process that runs a message, and outlives this one."""
    from agentsdir.cli.starting import Starting

    Starting(env, world.layout.root, detached=True)(paths, message_id, alone=False)


def send_and_wait(
    env: Environment, world: World, paths: AgentPaths, message: Message, manner: Manner
) -> None:
    """Run a message's turn and print its answer, and those of the agent's turns that follow."""
    from agentsdir.engine.turns import say

    with Answer(env, manner) as answer:
        sender = answer.sender
        result = say(world, paths, message, sender, manner.waiting, alone=manner.alone)
        answer.finish([result], world)
    if manner.record and not result.recorded:
        note(env, "another process ran the turn, and kept no stream of it")


def run_waiting(
    env: Environment, world: World, paths: AgentPaths, message_id: str, manner: Manner
) -> None:
    """Run what waits in an inbox, up to a message if one is named, and print the answers."""
    from agentsdir.engine.turns import catch_up_to, render

    with Answer(env, manner) as answer:
        if message_id:
            one = catch_up_to(
                world, paths, message_id, answer.sender, manner.waiting, alone=manner.alone
            )
            done = [one]
        else:
            done = render(world, paths, answer.sender, manner.waiting, alone=manner.alone)
        answer.finish(done, world)


class Answer:
    """Prints what a command is answered, and breaks off what it is not."""

    def __init__(self, env: Environment, manner: Manner) -> None:
        from agentsdir.cli.answers import AnswerPrinter
        from agentsdir.engine.running import Sender

        self._env = env
        self._manner = manner
        self._printer = AnswerPrinter(env, events=manner.events, silent=manner.as_json)
        self.sender = Sender(
            self._printer.take, manner.record, manner.permission_mode, manner.timeout
        )

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, kind: Any, *_rest: object) -> None:
        if kind is not None:
            self._printer.break_off()

    def finish(self, done: list[TurnResult], world: World) -> None:
        """Print the end of the answer, or the results."""
        if not self._manner.as_json:
            self._printer.finish(done[-1].response)
            return
        durability = world.disk.durability.value
        print_one = print_document if len(done) == 1 else print_json
        for result in done:
            print_one(self._env, {**result.as_json(), "durability": durability})
