"""Whom a message is for, as a command line says it (docs/behaviour.md, "Routing"; decision D27)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentsdir.cli.options import read_pairs
from agentsdir.engine.create import NewAgent, create_agent, default_target, find_or_create
from agentsdir.engine.lookup import find_agent
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths


class TargetOptions(NamedTuple):
    """What a command line says about whom it means; `words` are its positional arguments.

    `promptless` is whether the prompt stands elsewhere, so that a single word is the agent; `file`
    is the file that `--messages` names.
    """

    words: tuple[str, ...] = ()
    to: str = ""
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
    def makes(self) -> bool:
        """Whether the agent is made if it is not there."""
        return bool(self.foreign or self.cron or self.heartbeat or self.create or self.ephemeral)

    @property
    def foreign(self) -> bool:
        """Whether the words are those of a person behind a connector."""
        return bool(self.connector or self.user or self.channel)

    @property
    def _named(self) -> bool:
        """Whether an option says whom it is for, so that no AGENT does."""
        return bool(self.to) or (self.makes and not self.create)

    def agent_and_prompt(self, env: Environment) -> tuple[str, str]:
        """Return AGENT, empty where none is named, and PROMPT, `-` where none is given.

        Raises `UsageError` for too many words, and where nobody at all is named.
        """
        from_agent = bool(self.sender) or env.turn is not None
        only_prompt = len(self.words) < 2 and not (self.create or (self.promptless and self.words))
        without = self._named or (from_agent and only_prompt)
        if len(self.words) > (1 if without else 2):
            raise UsageError(f"there is one prompt, and this is another: {self.words[-1]!r}")
        if not (without or self.words or self.create):
            raise _nobody()
        self._check_foreign(env)
        agent, *rest = ("", *self.words) if without else (self.words or ("",))
        return agent, (rest or ["-"])[0]

    def _check_foreign(self, env: Environment) -> None:
        """Refuse a stranger's words where they could be taken for options.

        See docs/behaviour.md, "Routing".
        """
        dashed = env.arguments[-len(self.words) - 1 :] == ("--", *self.words)
        if self.foreign and self.words and not dashed:
            raise UsageError(
                "with --connector the prompt comes after -- or on standard input",
                hint="a stranger's words that begin with a dash would be options",
            )
        if self.foreign and self.file not in ("", "-"):
            raise UsageError("with --connector, --messages reads standard input only: give -")


def find_target(env: Environment, services: Services, options: TargetOptions) -> AgentPaths:
    """Return the agent that is meant; it is made if it has to be and may be.

    Raises `UsageError` where nobody is named, or in two ways; else what `find_agent`,
    `find_or_create` and `default_target` raise.
    """
    agent, _ = options.agent_and_prompt(env)
    _check_ways(options, agent)
    if options.makes:
        return _find_or_create(env, services, options, agent)
    if options.to or agent:
        return find_agent(services.layout, options.to or agent)
    sender = options.sender or (env.turn.agent_id if env.turn else "")
    if not sender:
        raise _nobody()
    return default_target(services, find_agent(services.layout, sender))


def _nobody() -> UsageError:
    return UsageError("no agent is named", hint="give AGENT, or --to, --connector, --cron, …")


def _check_ways(options: TargetOptions, agent: str) -> None:
    ways = {
        "--to": options.to,
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
    if any(settings) and not options.makes:
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
        provider=options.provider or services.settings.provider,
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
