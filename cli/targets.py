"""Which agent a command line sends a message to (docs/behaviour.md, "Routing"; decision D27)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentsdir.cli.naming import LAST, find_agent
from agentsdir.cli.options import read_pairs
from agentsdir.engine.create import NewAgent, create_agent, default_target, find_or_create
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths


class TargetOptions(NamedTuple):
    """The options that name an agent or describe a new one; `words` are the positional arguments.

    `promptless` is whether no argument is the prompt, so that a single one is the agent. `file` is
    the value of `--messages`.
    """

    words: tuple[str, ...] = ()
    to: str = ""
    last: bool = False
    sender: str = ""
    connector: str = ""
    user: str = ""
    channel: str = ""
    cron: str = ""
    heartbeat: bool = False
    create: bool = False
    ephemeral: bool = False
    provider: str = ""
    model: str = ""
    system: str = ""
    option: tuple[str, ...] = ()
    promptless: bool = False
    file: str = ""

    @property
    def may_create(self) -> bool:
        """Whether the agent is made if there is none."""
        return bool(
            self.from_connector or self.cron or self.heartbeat or self.create or self.ephemeral
        )

    @property
    def from_connector(self) -> bool:
        """Whether the prompt comes from a person behind a connector."""
        return bool(self.connector or self.user or self.channel)

    @property
    def _named_by_option(self) -> bool:
        """Whether an option names the agent, in place of the argument AGENT."""
        return bool(self.to) or self.last or (self.may_create and not self.create)

    def agent_and_prompt(self, env: Environment) -> tuple[str, str]:
        """Return the argument AGENT, or an empty text, and the argument PROMPT, or `-`.

        Raises `UsageError` for too many arguments, and if no agent is named at all.
        """
        from_agent = bool(self.sender) or env.turn is not None
        only_prompt = len(self.words) < 2 and not (self.create or (self.promptless and self.words))
        without = self._named_by_option or (from_agent and only_prompt)
        if len(self.words) > (1 if without else 2):
            how = "an option names the agent, so the prompt is" if without else "the prompt is"
            raise UsageError(
                f"{how} {self.words[0 if without else 1]!r}, and {self.words[-1]!r} is too much",
                hint="a prompt of several words stands in quotes",
            )
        if not (without or self.words or self.create):
            raise _no_target()
        self._check_connector(env)
        agent, *rest = ("", *self.words) if without else (self.words or ("",))
        return agent, (rest or ["-"])[0]

    def _check_connector(self, env: Environment) -> None:
        """Raise `UsageError` where a stranger's words could be taken for options or for a file."""
        dashed = env.arguments[-len(self.words) - 1 :] == ("--", *self.words)
        if self.from_connector and self.words and not dashed:
            raise UsageError(
                "with --connector the prompt comes after -- or on standard input",
                hint="a stranger's words that begin with a dash would be options",
            )
        if self.from_connector and self.file not in ("", "-"):
            raise UsageError("with --connector, --messages reads standard input only: give -")


def find_target(env: Environment, services: Services, options: TargetOptions) -> AgentPaths:
    """Return the agent that gets the message; make it if the options allow that.

    Raises `UsageError` if no agent is named, or one in two ways, and what `find_agent`,
    `find_or_create` and `default_target` raise.
    """
    agent, _ = options.agent_and_prompt(env)
    _check_ways(options, agent)
    if options.may_create:
        return _find_or_create(env, services, options, agent)
    if named := LAST if options.last else options.to or agent:
        return find_agent(env, named)
    sender = options.sender or (env.turn.agent_id if env.turn else "")
    if not sender:
        raise _no_target()
    return default_target(services, find_agent(env, sender))


def _no_target() -> UsageError:
    return UsageError("no agent is named", hint="give AGENT, or --continue, --to, --connector, …")


def _check_ways(options: TargetOptions, agent: str) -> None:
    ways = {
        "--to": options.to,
        "--continue": options.last,
        "--connector, --user and --channel": options.connector or options.user or options.channel,
        "--cron": options.cron,
        "--heartbeat": options.heartbeat,
        "--create": options.create,
        "--ephemeral": options.ephemeral,
    }
    given = [name for name, value in ways.items() if value]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} name an agent in two ways; give one")
    if options.create and not agent:
        raise UsageError("--create needs the AGENT's name")
    settings = (options.provider, options.model, options.system, options.option)
    if any(settings) and not options.may_create:
        raise UsageError(
            "--provider, --model, --system and --option are for an agent that may be made here",
            hint="--create, --connector, --cron, --heartbeat and --ephemeral make one",
        )


def _find_or_create(
    env: Environment, services: Services, options: TargetOptions, name: str
) -> AgentPaths:
    services.check_trust()  # before an agent is made that could run no turn
    wanted = NewAgent(
        kind="cron" if options.cron else "heartbeat" if options.heartbeat else "user",
        provider=options.provider,
        model=options.model,
        system_prompt=options.system,
        cwd=str(env.cwd.resolve()),
        name=name if options.create else "",
        login=env.login,
        connector=options.connector,
        user=options.user,
        channel=options.channel,
        cron=options.cron,
        options=read_pairs("--option", options.option),
        ephemeral=options.ephemeral,
    )
    if options.ephemeral:
        return services.layout.agent(create_agent(services, wanted))
    return find_or_create(services, wanted).paths
