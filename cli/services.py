"""The services that the command line passes to the engine: clock, ids, disk, hooks, trust.

They are not in `environment`, so that a command that only reads does not load what runs a turn.
"""

from __future__ import annotations

import secrets
import signal
import string
import subprocess
import sys
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from datetime import time as dawn
from functools import partial
from typing import TYPE_CHECKING

from agentsdir.adapters.processes import wait_for_end
from agentsdir.adapters.protocol import Host
from agentsdir.cli.config import PROVIDER_VARIABLE, default_provider, provider_config
from agentsdir.cli.environment import HOOK_OF
from agentsdir.cli.hooks import Hooks, hand_out
from agentsdir.cli.trust import check_trust, is_private, trust_made
from agentsdir.engine.services import ClientConfig, Services
from agentsdir.formats.signals import sleep
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.settings import read_settings
from agentsdir.formats.times import to_text

if TYPE_CHECKING:
    from subprocess import Popen

    from agentsdir.cli.config import ProviderConfig
    from agentsdir.cli.environment import Environment
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState


TURN_VARIABLES = ("AGENTSDIR_AGENT", "AGENTSDIR_TURN")
"""Variables that make a process part of a turn. A process that runs another turn has none."""


def start_turn(
    env: Environment, paths: AgentPaths, message_id: str, *, alone: bool
) -> StartedProcess:
    """Start a process of this program that runs an agent's message (decision D19).

    Args:
        alone: the caller waits for it, and runs what follows from the turn. Otherwise the process
            is independent of this one and of its terminal.

    Raises `OSError` if it cannot be started.
    """
    program = "from agentsdir.cli.main import main; main()"
    root = paths.folder.parent.parent
    given = ["--root", str(root.resolve()), "send", paths.id, "--no-message"]
    given += ["--message-id", message_id, "--wait", "-1", *(["--alone"] if alone else [])]
    # A hook does not wait for a process that is independent.
    left_out = TURN_VARIABLES if alone else (*TURN_VARIABLES, HOOK_OF)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if alone else subprocess.DEVNULL,
        env={k: v for k, v in env.variables.items() if k not in left_out},
        start_new_session=not alone,
    )
    return StartedProcess(process)


class StartedProcess:
    """A process that `start_turn` started."""

    def __init__(self, process: Popen[bytes]) -> None:
        self._process = process

    def wait(self, limit: float | None = None) -> int | None:
        """Wait until it ends; return its exit code, None after `limit` seconds."""
        return wait_for_end(self._process, limit)

    def interrupt(self) -> None:
        """Ask it to end its turn."""
        with suppress(ProcessLookupError):
            # Not SIGINT, which a shell has ignored by all that it runs in the background.
            self._process.send_signal(signal.SIGTERM)


_LETTERS = string.ascii_lowercase
_CHARACTERS = _LETTERS + string.digits


class FreshIds:
    """Random ids: of the form of a cuid2 for agents, messages and turns, uuid4 for sessions."""

    def agent(self) -> str:
        """Return a new one: a letter, and 23 letters and digits, 123 bits of chance."""
        rest = (secrets.choice(_CHARACTERS) for _ in range(23))
        return secrets.choice(_LETTERS) + "".join(rest)

    def session(self) -> str:
        """Return a new uuid4 in 32 hex digits."""
        return uuid.uuid4().hex


def now() -> str:
    """Return the time in RFC 3339, to the microsecond."""
    return to_text(datetime.now(UTC))


def local_day(moment: datetime) -> tuple[datetime, datetime]:
    """Return when the day begins and ends, in the time zone of this machine, of a moment."""
    today = moment.astimezone().date()
    midnights = (datetime.combine(day, dawn()) for day in (today, today + timedelta(days=1)))
    begins, ends = (midnight.astimezone() for midnight in midnights)
    return begins, ends


def services_of(env: Environment) -> Services:
    """Return the services of this process: the real clock, random ids, the user's hooks.

    Unknown keys of settings.toml are noted on stderr, once. Raises `Invalid` (kind
    ``bad-settings``), and `UsageError` for a root whose links form a loop.
    """
    layout = env.layout
    settings = read_settings(layout)
    if settings.unknown and not env.warned_of_settings:
        env.warned_of_settings = True
        env.notify(f"{layout.settings} {settings.unknown_keys_note}")
    if named := env.variables.get(PROVIDER_VARIABLE):
        settings = settings._replace(provider=named)
    env.count_waits()
    services = Services(
        layout,
        now,
        sleep,
        FreshIds(),
        Disk(settings.durability),
        partial(check_trust, env),
        partial(_client, env),
        env.notify,
        settings,
        partial(default_provider, env),
        partial(start_turn, env),
        partial(hand_out, env),
        partial(is_private, env),
        partial(trust_made, env),
        local_day,
        Hooks(env),
    )
    return services._replace(**env.overrides)


def host_of(env: Environment, said: ProviderConfig) -> Host:
    """Return the machine for a client of this user, which asks no person.

    Args:
        said: what config.toml says of the client.
    """
    return Host(
        home=env.home,
        variables=env.variables,
        command=said.command,
        environment=said.environment,
        permission_mode=said.permission_mode,
    )


def _client(env: Environment, state: AgentState) -> ClientConfig:
    """Return how this user runs the program behind an agent's provider (config.toml)."""
    # Only for a turn of a client: every command that writes would take 5 ms longer.
    from agentsdir.cli.grants import mode_for, read_grants
    from agentsdir.cli.tool_confirmation import ToolConfirmation

    said = provider_config(env, state.session.provider_name)
    confirmation = ToolConfirmation(env, state, now)
    rules = confirmation.rules()  # first: it names what is wrong with the grants
    grants = read_grants(env, quiet=True)
    host = host_of(env, said)._replace(
        # A client does not ask about what it may use, and a hook is to be asked about all.
        allowed=() if confirmation.has_hook else rules,
        confirm=confirmation,
    )
    return ClientConfig(host, said.model, mode_for(grants, env.layout.agent(state.agent_id), state))
