"""What a caller passes to the engine: a root, a clock, new ids. The engine makes none of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from agentsdir.adapters.protocol import Host
from agentsdir.adapters.registry import WITHOUT_CLIENT
from agentsdir.formats.store.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.store.files import Disk
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.state import AgentState

    class IdGenerator(Protocol):
        """Generates new ids."""

        def agent(self) -> str:
            """Return a new id in the form of a cuid2, for an agent, a message or a turn."""

        def session(self) -> str:
            """Return a new session id: a uuid4 in 32 hex digits."""

    class TurnProcess(Protocol):
        """A child process of this program that runs a message of an agent."""

        def wait(self, limit: float | None = None) -> int | None:
            """Wait until the process ends; return its exit code, None after `limit` seconds."""

        def interrupt(self) -> None:
            """Ask the process to end its turn."""

    RunHook: TypeAlias = Callable[[dict[str, Any]], "HookResult"]

    class UserHooks(Protocol):
        """The executable hooks in the user's configuration folder."""

        def may_have(self, hook: str) -> bool:
            """Return whether an agent may have a hook of this name; it costs next to nothing."""

        def find(self, hook: str, state: AgentState) -> RunHook | None:
            """Return what runs the hook of this name for an agent; None if there is none.

            What it returns takes the document that the hook reads, and raises `HookFailed` if the
            hook cannot run, takes too long, or is ended by a signal. Raises `HookFailed` for a file
            that is no executable of the user's.
            """

    class StartTurn(Protocol):
        """Starts a `TurnProcess`."""

        def __call__(
            self,
            paths: AgentPaths,
            message_id: str,
            *,
            alone: bool,
        ) -> TurnProcess:
            """Start one. It outlives this process unless it is `alone`. Raises `OSError`."""


class HookResult(NamedTuple):
    """How a hook ended: its exit status, its output, and its standard error as `reason`."""

    status: int
    out: bytes
    reason: str


class NoHooks:
    """The hooks where there is no user."""

    def may_have(self, hook: str) -> bool:  # noqa: D102, `UserHooks` describes them
        del hook
        return False

    def find(self, hook: str, state: AgentState) -> RunHook | None:  # noqa: D102
        del hook, state
        return None


class ClientConfig(NamedTuple):
    """How this user runs the program of a provider; no root sets this (decision D33).

    `model` is the model of agents that were created without one. `granted_mode` is the permission
    mode that the user gave this agent, which no log can; it overrides the recorded one. The engine
    adds to `host` what belongs to a turn.
    """

    host: Host
    model: str = ""
    granted_mode: str = ""


def no_client_config(_state: AgentState) -> ClientConfig:
    """Return the configuration where there is no user: no home folder and no confirmation."""
    return ClientConfig(Host(Path("/nonexistent")))


def utc_day(moment: datetime) -> tuple[datetime, datetime]:
    """Return the day of a moment where there is no local time."""
    begins = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return begins, begins + timedelta(days=1)


class Services(NamedTuple):
    """One agents directory, and what the engine needs from outside to work on it.

    Attributes:
        layout: the agents directory.
        now: returns the time as an RFC 3339 timestamp.
        sleep: waits for a number of seconds.
        ids: generates new ids.
        disk: makes the writes of one command durable.
        check_trust: raises `ProviderError` if this root may not start a provider (decision D33).
        client_config: returns the user's configuration for an agent's provider. Raises `Invalid`
            for a damaged config.toml.
        notify_user: shows one line of text to the user, if there is one.
        settings: the settings of the root.
        default_provider: returns the provider of an agent that is made without one. Raises
            `UsageError` if there are several to choose from.
        start_turn: runs a message of an agent in a process of its own; None where the caller
            cannot start processes.
        deliver_text: passes an outgoing text to the hook of its connector, and returns whether
            there is a hook. Raises `HookFailed` if the hook refuses the text.
        is_private: returns whether a path is where the user's programs keep their settings, or
            is inside an agents directory. Nothing is restored to such a path.
        on_root_created: called after this command has created the agents directory.
        local_day: returns when the day begins and ends that a moment is in.
        hooks: the user's executable hooks, but for those of the two fields above.
    """

    layout: Layout
    now: Callable[[], str]
    sleep: Callable[[float], None]
    ids: IdGenerator
    disk: Disk
    check_trust: Callable[[], None]
    client_config: Callable[[AgentState], ClientConfig] = no_client_config
    notify_user: Callable[[str], None] = lambda _text: None
    settings: Settings = Settings()
    default_provider: Callable[[], str] = lambda: WITHOUT_CLIENT
    start_turn: StartTurn | None = None
    deliver_text: Callable[[dict[str, Any]], bool] = lambda _document: False
    is_private: Callable[[Path], bool] = lambda _path: False
    on_root_created: Callable[[], None] = lambda: None
    local_day: Callable[[datetime], tuple[datetime, datetime]] = utc_day
    hooks: UserHooks = NoHooks()
