"""What `send` does once it is known to whom: in a turn, without waiting, or to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.protocol import RECORDABLE_MODES
from agentsdir.cli.conversation import AnswerPrinter
from agentsdir.cli.output import print_document, print_json, print_text
from agentsdir.cli.prompts import read_messages, read_prompt
from agentsdir.cli.services import services_of
from agentsdir.cli.targets import find_target
from agentsdir.engine.dispatcher import WaitLimits, run_inbox, run_until, send_message
from agentsdir.engine.in_turn import queue_from_turn, send_from_turn
from agentsdir.engine.inbox import Message, enqueue, retry_message
from agentsdir.engine.lookup import find_agent
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.errors import Busy, UsageError
from agentsdir.formats.store import locks

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.cli.environment import Environment
    from agentsdir.cli.targets import TargetOptions
    from agentsdir.engine.result import TurnResult
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths


class Manner(NamedTuple):
    """How a message is sent; the fields are the options of `send`."""

    events: bool = False
    record: bool = False
    permission_mode: str = ""
    timeout: float = 0
    wait: float | None = None
    alone: bool = False
    as_json: bool = False

    def waiting_in(self, env: Environment) -> WaitLimits:
        """A turn and a slot are waited for: for ever, or, together, as long as `--wait` says."""
        if self.wait is None:
            # The slots may be held by turns that wait for the very hook that runs this.
            return WaitLimits(locks.FOREVER, 0 if env.hook_of else locks.FOREVER)
        return WaitLimits(self.wait, self.wait)

    def told_with(self, message: Message) -> Message:
        """Return a message that says in which mode it is to be run, where a log may ask for it."""
        if self.permission_mode not in RECORDABLE_MODES:
            return message  # it goes for the turn that this command runs, and for no other
        return message._replace(permission_mode=self.permission_mode)


class Sending(NamedTuple):
    """What `send` is asked to do; `messages` is the file of a prompt, `retry` names one message."""

    target: TargetOptions
    messages: Path | None = None
    no_wait: bool = False
    no_message: bool = False
    message_id: str = ""
    retry: str = ""
    sync: bool = False
    no_stdin: bool = False
    manner: Manner = Manner()


def send(env: Environment, asked: Sending) -> None:
    """Do what a command line asks of `send`.

    Raises `UsageError` for what does not go together, and what finding the agent and the turn do.
    """
    target, retry, turn = asked.target, asked.retry, env.turn
    if asked.no_message and turn is not None:
        raise UsageError("--no-message runs turns, and within a turn none is: it would wait for it")
    prompt = target.agent_and_prompt(env)[1]
    if (asked.messages is not None or asked.no_message or retry) and prompt != "-":
        raise UsageError("give one of: a prompt, --messages, --retry, --no-message")
    if asked.no_message and (asked.sync or asked.no_wait or asked.messages is not None or retry):
        raise UsageError("--no-message sends none; nothing else goes with it")
    if asked.no_wait or turn is not None:
        check_unwatched(asked.manner)
    # What can be refused is refused before an agent is made.
    content = None if asked.no_message or retry else _content(env, prompt, asked)
    if asked.sync and not (target.sender or retry or turn):
        raise UsageError("--sync needs --from: who is to get the answer?")
    from_agent = find_agent(env.layout, target.sender).id if target.sender else ""
    if turn is not None and from_agent not in ("", turn.agent_id):
        raise UsageError(f"in a turn of agent {turn.agent_id} it is that agent who sends")
    services = services_of(env)
    env.count_waits(asked.manner.wait)
    paths = find_target(env, services, target)
    services.layout.check_version(writing=True)
    if turn is None and not asked.no_wait and paths.id in env.hook_of:
        raise Busy(
            f"agent {paths.id} waits for the hook that runs this, so its turn cannot be waited for",
            hint="`agentsdir queue` leaves it a message",
        )
    if asked.no_message:
        run_waiting(env, services, paths, asked.message_id, asked.manner)
        return
    said = retry_message(paths, retry) if content is None else Message(content)
    said = asked.manner.told_with(said._replace(sync=asked.sync or said.sync, id=asked.message_id))
    if from_agent:
        said = said._replace(sender=from_agent)
    if asked.sync and said.sender == "cli" and turn is None:
        raise UsageError("--sync needs --from: who is to get the answer?")
    if turn is None and not asked.no_wait:
        send_and_wait(env, services, paths, said, asked.manner)
        return
    give = send_in_turn if turn is not None else send_away
    there = give(env, services, paths, said)
    print_message(env, services, paths, there, as_json=asked.manner.as_json)


def _content(env: Environment, prompt: str, asked: Sending) -> list[dict[str, Any]]:
    if asked.messages is not None:
        return read_messages(env, asked.messages)
    by_program = asked.target.foreign or asked.target.cron or asked.target.heartbeat
    return read_prompt(env, prompt, no_stdin=asked.no_stdin, add_stdin=not by_program)


def check_unwatched(manner: Manner) -> None:
    """Refuse what nobody would heed of a turn that this command does not run itself."""
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
    env: Environment, services: Services, paths: AgentPaths, message_id: str, *, as_json: bool
) -> None:
    """Say which message now waits in an inbox."""
    if as_json:
        durability = services.disk.durability
        said = {"type": "message", "agentId": paths.id, "messageId": message_id}
        print_json(env, {**said, "durability": durability})
    else:
        print_text(env, message_id + "\n")


def send_in_turn(env: Environment, services: Services, paths: AgentPaths, message: Message) -> str:
    """Send from the turn that this command runs in; return the message's id."""
    assert env.turn is not None
    sender = services.layout.agent(env.turn.agent_id)
    return send_from_turn(
        services, sender, env.turn.turn_id, paths, message._replace(sender=sender.id)
    )


def queue_in_turn(env: Environment, services: Services, paths: AgentPaths, message: Message) -> str:
    """Queue from the turn that this command runs in; return the message's id."""
    assert env.turn is not None
    sender = services.layout.agent(env.turn.agent_id)
    return queue_from_turn(
        services, sender, env.turn.turn_id, paths, message._replace(sender=sender.id)
    )


def send_away(env: Environment, services: Services, paths: AgentPaths, message: Message) -> str:
    """Have a process of its own run a message, and return the message's id at once."""
    services.check_trust()
    with services.disk.settled():
        message_id = enqueue(services, paths, message)
    assert services.start_turn is not None
    services.start_turn(paths, message_id, alone=False)
    return message_id


def send_and_wait(
    env: Environment, services: Services, paths: AgentPaths, message: Message, manner: Manner
) -> None:
    """Run a message's turn and print its answer, and those of the agent's turns that follow."""
    with Answer(env, manner) as answer:
        sender = answer.sender
        result = send_message(
            services, paths, message, sender, manner.waiting_in(env), alone=manner.alone
        )
        answer.finish([result], services)
    if manner.record and not result.recorded:
        env.tell("another process ran the turn, and kept no stream of it")


def run_waiting(
    env: Environment, services: Services, paths: AgentPaths, message_id: str, manner: Manner
) -> None:
    """Run what waits in an inbox, up to a message if one is named, and print the answers."""
    with Answer(env, manner) as answer:
        if message_id:
            one = run_until(
                services,
                paths,
                message_id,
                answer.sender,
                manner.waiting_in(env),
                alone=manner.alone,
            )
            done = [one]
        else:
            done = run_inbox(
                services, paths, answer.sender, manner.waiting_in(env), alone=manner.alone
            )
        answer.finish(done, services)


class Answer:
    """Prints what a command is answered, and breaks off what it is not."""

    def __init__(self, env: Environment, manner: Manner) -> None:
        self._env = env
        self._manner = manner
        self._printer = AnswerPrinter(env, events=manner.events, silent=manner.as_json)
        self.sender = TurnOptions(
            self._printer.take, manner.record, manner.permission_mode, manner.timeout
        )

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, kind: Any, *_rest: object) -> None:
        if kind is not None:
            self._printer.break_off()

    def finish(self, done: list[TurnResult], services: Services) -> None:
        """Print the end of the answer, or the results."""
        if not self._manner.as_json:
            self._printer.finish(done[-1].response)
            return
        durability = services.disk.durability
        print_one = print_document if len(done) == 1 else print_json
        for result in done:
            print_one(self._env, {**result.as_json(), "durability": durability})
