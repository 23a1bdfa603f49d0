"""What the engine is handed: a root, a clock, fresh ids. It takes none of these by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agentsdir.adapters.protocol import Host
from agentsdir.formats.store.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.store.files import Disk
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.state import AgentState

    class FreshIds(Protocol):
        """Where new ids come from."""

        def agent(self) -> str:
            """Return a new agent, message or turn id (of the form of a cuid2)."""

        def session(self) -> str:
            """Return a new session id (a uuid4 in 32 hex digits)."""

    class StartedTurn(Protocol):
        """A process of ours that runs an agent's message."""

        def wait(self) -> int:
            """Wait for its end; return its exit code."""

        def interrupt(self) -> None:
            """Have it end its turn."""

    class Start(Protocol):
        """Starts such a process."""

        def __call__(
            self,
            paths: AgentPaths,
            message_id: str,
            *,
            alone: bool,
        ) -> StartedTurn:
            """Start one, which outlives this process unless it is `alone`. Raises `OSError`."""


class Client(NamedTuple):
    """How this user runs the program behind a provider, which no root can say (decision D33).

    `model` is for agents that were given none. The engine adds to `host` what belongs to a turn.
    """

    host: Host
    model: str = ""


def no_client(_state: AgentState) -> Client:
    """Return what a world without a user says: no home, no configuration, nobody to ask."""
    return Client(Host(Path("/nonexistent")))


class World(NamedTuple):
    """One agents directory and the world around it.

    `now` returns an RFC 3339 timestamp; `sleep` waits some seconds. `disk` makes the writes of one
    command durable. `check_trust` raises `ProviderError` where this root may start no provider
    (decision D33). `client` says how the user runs the program of an agent's provider, and raises
    `Invalid` for a damaged config.toml. `tell` says something to the person, if one is there.
    `settings` are those of the root. `start` runs a message of an agent in a process of its own,
    `alone` as in `engine.dispatcher`; None where there is nobody to do so.
    `hand_out` gives an outgoing text to its connector and tells whether there is one; it raises
    `HookFailed` when the connector does not take it. `is_private` tells whether a path is where
    the user's programs keep their settings, or in an agents directory: nothing is put back there.
    `root_made` is called when this command has made the agents directory.
    """

    layout: Layout
    now: Callable[[], str]
    sleep: Callable[[float], None]
    ids: FreshIds
    disk: Disk
    check_trust: Callable[[], None]
    client: Callable[[AgentState], Client] = no_client
    tell: Callable[[str], None] = lambda _text: None
    settings: Settings = Settings()
    start: Start | None = None
    hand_out: Callable[[dict[str, Any]], bool] = lambda _document: False
    is_private: Callable[[Path], bool] = lambda _path: False
    root_made: Callable[[], None] = lambda: None
