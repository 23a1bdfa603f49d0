"""What `send`, `queue` and `spawn` print: the answer of a turn, or the id of a queued message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.cli.conversation import AnswerPrinter
from agentsdir.cli.output import print_document, print_json, print_text
from agentsdir.engine.dispatcher import WaitLimits
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.store import locks

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.engine.result import TurnResult
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths


class RunOptions(NamedTuple):
    """How a turn is run and printed; the fields are options of `send` and `spawn`.

    `wait` and `timeout` are in seconds; a `wait` of None sets no limit, and a `timeout` of 0.
    """

    events: bool = False
    record: bool = False
    permission_mode: str = ""
    timeout: float = 0
    wait: float | None = None
    alone: bool = False
    as_json: bool = False

    def wait_limits(self, env: Environment) -> WaitLimits:
        """Return how long to wait for a turn and for a slot: without `--wait`, for ever."""
        if self.wait is None:
            # The slots may be held by turns that wait for the very hook that runs this.
            return WaitLimits(locks.FOREVER, 0 if env.hook_of else locks.FOREVER)
        return WaitLimits(self.wait, self.wait)


class TurnPrinter:
    """Prints the answer of a turn while it runs; where the turn is cut off, ends the line."""

    def __init__(self, env: Environment, options: RunOptions) -> None:
        self._env = env
        self._options = options
        self._printer = AnswerPrinter(env, events=options.events, silent=options.as_json)
        self.turn_options = TurnOptions(
            self._printer.take, options.record, options.permission_mode, options.timeout
        )

    def __enter__(self) -> TurnPrinter:
        return self

    def __exit__(self, kind: Any, *_rest: object) -> None:
        if kind is not None:
            self._printer.break_off()

    def finish(self, done: list[TurnResult], services: Services) -> None:
        """Print the end of the answer, or with `--json` the results."""
        if not self._options.as_json:
            self._printer.finish(done[-1].response)
            return
        durability = services.disk.durability
        print_one = print_document if len(done) == 1 else print_json
        for result in done:
            print_one(self._env, {**result.as_json(), "durability": durability})


def print_message(
    env: Environment, services: Services, paths: AgentPaths, message_id: str, *, as_json: bool
) -> None:
    """Print the id of a message that waits in an inbox now."""
    if as_json:
        durability = services.disk.durability
        document = {"type": "message", "agentId": paths.id, "messageId": message_id}
        print_json(env, {**document, "durability": durability})
    else:
        print_text(env, message_id + "\n")
