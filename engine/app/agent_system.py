"""All agents of a root as one object: they are restored, found by strategy, and sent messages.

docs/library.md, "AgentSystem".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, Unpack

from agentsdir.adapters import registry
from agentsdir.engine import lookup
from agentsdir.engine.app.app import BaseApp, as_wanted, find_whole
from agentsdir.engine.app.component import AgentConfig, always
from agentsdir.engine.create import default_target, find_or_create
from agentsdir.engine.inbox import PERSON
from agentsdir.engine.restore import restore_root
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentsdir.engine.app.app import SharedOptions
    from agentsdir.engine.app.execution import Execution
    from agentsdir.engine.app.prompt import Input
    from agentsdir.engine.app.session import Session
    from agentsdir.engine.create import NewAgent
    from agentsdir.engine.restore import Restored
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths


class BaseAgentSystem:
    """The agents of an agents directory, each with its inbox.

    Args:
        agent: what agents that are made here begin with; those that are there keep what they have.
            Its tools are offered to all of them.
        services: as for `BaseApp`.
        new: the same.
        options: see `SharedOptions`.
    """

    def __init__(
        self,
        agent: AgentConfig,
        services: Callable[[], Services],
        new: NewAgent,
        **options: Unpack[SharedOptions],
    ) -> None:
        kept = AgentConfig(tools=agent.tools)
        self._app = BaseApp(always(kept), services, new, **options)
        self._services = services
        if not isinstance(agent.provider, str):
            registry.register(agent.provider)  # the log has only its name
        self._new = as_wanted(agent, new)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._app.close(abort=kind is not None)

    def load(self) -> list[Restored]:
        """Restore all agents, at boot or after a crash; return what was done to each.

        Turns that a dead process left open are ended, with notices to the agents that wait for
        them. A message that waits stays in its inbox, and none is sent again.
        """
        return restore_root(self._services())

    def agent_for(self, strategy: str) -> str:
        """Return the id of the agent that a strategy chooses.

        Args:
            strategy: `most-recent-foreground` or `heartbeat`.

        Raises `UsageError` for another strategy, and `NoSuchAgent` when there is none.
        """
        services = self._services()
        found = lookup.resolve(services.layout, strategy)
        for listed in found.unreadable:
            services.notify_user(lookup.passed_over(listed))
        return found.paths.id

    def session(self, agent: str) -> Session:
        """Return the session of an agent. Raises `NoSuchAgent`.

        Args:
            agent: its id, its name, or the id of its session.
        """
        return self._app.session_of(find_whole(self._services().layout, agent)[0])

    def post(
        self,
        target: str | Mapping[str, str] | None,
        message: Input,
        *,
        sender: str = "",
    ) -> Execution:
        """Put a message into an agent's inbox, on disk, and have its turn run beside the caller.

        The turns of one agent are in the order of the calls. What a turn posts to its own agent is
        not waited for: it may be on disk a moment later.

        Args:
            target: the agent as `session` takes it, or a descriptor such as ``{"type": "cron",
                "id": "nightly"}``, whose agent is made if there is none. None chooses for the
                sender: the parent of a subagent, and for any other the most recent other
                foreground agent.
            sender: the agent that sends it, which makes it a system message; a person without it.

        Raises `NoSuchAgent`, `UsageError` (kind ``bad-descriptor``) for what is no descriptor, what
        `create_agent` raises, and what keeps a message out of an inbox, as `SessionStateError` for
        a closed agent. What the turn raises is the result.
        """
        services = self._services()
        origin = find_whole(services.layout, sender)[0] if sender else None
        session = self._target(services, target, origin)
        execution = session.send(message, sender=PERSON if origin is None else origin.id)
        execution.wait_until_queued()
        if execution.message_id is None and execution.is_done:
            execution.future.result()
        return execution

    def _target(
        self,
        services: Services,
        target: str | Mapping[str, str] | None,
        origin: AgentPaths | None,
    ) -> Session:
        if isinstance(target, str):
            return self.session(target)
        if target is not None:
            services.check_trust()  # before an agent is made that could run no turn
            with services.disk.synced_at_end():
                found = find_or_create(services, self._described(target))
            return self._app.session_of(found.paths, is_new=found.made)
        if origin is None:
            raise UsageError("no agent is named", hint="name a target, or a sender that has one")
        return self._app.session_of(default_target(services, origin))

    def _described(self, descriptor: Mapping[str, Any]) -> NewAgent:
        """Return the fields of an agent from its descriptor, as it stands in descriptor.json."""
        kind = descriptor.get("type")
        fields = _FIELDS.get(str(kind))
        given: dict[str, Any] = {
            field: descriptor.get(name) for name, field in (fields or {}).items()
        }
        if fields is None or not all(isinstance(value, str) and value for value in given.values()):
            raise UsageError(
                f"{dict(descriptor)!r} is no descriptor of an agent",
                hint="its type is one of " + ", ".join(_FIELDS),
                kind="bad-descriptor",
            )
        return self._new._replace(kind=str(kind), **given)


_FIELDS: dict[str, dict[str, str]] = {
    "user": {"connector": "connector", "userId": "user", "channelId": "channel"},
    "cron": {"id": "cron"},
    "heartbeat": {},
    "subagent": {"parentAgentId": "parent", "name": "name"},
}
"""By kind, the fields of a descriptor, and what they are called in `NewAgent`."""
