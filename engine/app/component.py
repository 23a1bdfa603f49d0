"""What runs in a session: a configuration, or a function that makes one of props."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from agentsdir.adapters.protocol import Architecture
    from agentsdir.engine.tools import Tool

_NOTHING: Mapping[str, Any] = MappingProxyType({})
SESSION_PARAMETER = "session"
"""The parameter for which a component is given the session that it configures."""


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """How the turns of a session run.

    Attributes:
        system: the system prompt.
        provider: a provider of this program (`model_provider`), or the name of one; empty for the
            app's, or else the user's default.
        model: the provider's model; empty for its default.
        tools: what the model may call, where the engine carries out its calls.
        max_ticks: how many model calls a turn may take; None for the provider's default.
        cwd: the working directory; empty for the app's.
        profile: the name of a profile of the agents directory.
        permission_mode: of the provider's client; one that a log may ask for.
        options: the provider's own settings.
        fallbacks: providers that answer if the one before fails.

    Raises `UsageError` (kind ``bad-config``) for a field of another type, which a log could not
    take.
    """

    system: str = ""
    provider: str | Architecture = ""
    model: str = ""
    tools: Sequence[Tool] = ()
    max_ticks: int | None = None
    cwd: str = ""
    profile: str = ""
    permission_mode: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    fallbacks: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in _TEXTS:
            if not isinstance(value := getattr(self, name), str):
                raise _wrong_type(name, value, "a text, and empty for the default")
        # A bool is an int.
        if self.max_ticks is not None and type(self.max_ticks) is not int:
            raise _wrong_type("max_ticks", self.max_ticks, "an integer, and None for the default")
        if isinstance(self.fallbacks, str):
            raise _wrong_type("fallbacks", self.fallbacks, "a list of names")

    @property
    def provider_name(self) -> str:
        """The name of the provider, which the log has; empty if none is given."""
        return self.provider if isinstance(self.provider, str) else self.provider.name


_TEXTS = ("system", "model", "cwd", "profile", "permission_mode")


def _wrong_type(name: str, value: object, wanted: str) -> UsageError:
    message = f"`{name}` of an AgentConfig is {value!r:.80}; it is {wanted}"
    return UsageError(message, kind="bad-config")


Component: TypeAlias = Callable[..., AgentConfig]
"""Makes the configuration of a turn from the session's props, which are its arguments.

Where it has a parameter `session`, it is given the session as well; None in the call for which the
session is made.
"""


class Element(NamedTuple):
    """A component with props."""

    component: Component
    props: Mapping[str, Any] = _NOTHING


Agent: TypeAlias = AgentConfig | Component | Element


def element(component: Component, **props: Any) -> Element:
    """Return a component with its props, as `session.spawn` takes it."""
    return Element(component, props)


def with_props(
    agent: Agent, props: Mapping[str, Any] | None = None
) -> tuple[Agent, dict[str, Any]]:
    """Return an agent without the props that it has, and its props with `props` over them."""
    if isinstance(agent, Element):
        return agent.component, {**agent.props, **(props or {})}
    return agent, dict(props or {})


def config_of(agent: Agent, props: Mapping[str, Any] | None, session: object = None) -> AgentConfig:
    """Return the configuration that an agent has with some props.

    Args:
        session: for a component that has a parameter of this name.

    Raises `UsageError`: kind ``bad-props`` for props that the component does not take or lacks,
    ``bad-component`` for one that returns anything but an `AgentConfig`. What a component raises
    passes.
    """
    made = _call_of(agent, props, session)()
    if not isinstance(made, AgentConfig):
        name = getattr(agent, "__name__", repr(agent))
        raise UsageError(
            f"the component {name} returned {type(made).__name__}, and no AgentConfig",
            kind="bad-component",
        )
    return made


def check_props(agent: Agent, props: Mapping[str, Any]) -> None:
    """Raise `UsageError` (kind ``bad-props``) unless a component can be called with props."""
    _call_of(agent, props, None)


def recorded_props(agent: Agent, props: Mapping[str, Any]) -> dict[str, Any]:
    """Return the props of a log that a component takes.

    Those that it does not are of an earlier version of the program, or of another program.
    """
    component, _ = with_props(agent)
    if isinstance(component, AgentConfig) or not callable(component):
        return {}
    try:
        taken = inspect.signature(component).parameters
    except (TypeError, ValueError):  # a callable of C: the call says so
        return {**props}
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return {**props}
    return {name: value for name, value in props.items() if name in taken}


def _call_of(
    agent: Agent, props: Mapping[str, Any] | None, session: object
) -> Callable[[], object]:
    agent, given = with_props(agent, props)
    if isinstance(agent, AgentConfig):
        if given:
            raise UsageError(f"a configuration takes no prop {min(given)!r}", kind="bad-props")
        return lambda: agent
    if not callable(agent):
        raise UsageError(f"{agent!r} is no component and no AgentConfig", kind="bad-component")
    name = getattr(agent, "__name__", repr(agent))
    try:
        signature = inspect.signature(agent)
        if SESSION_PARAMETER in signature.parameters:
            given[SESSION_PARAMETER] = session
        bound = signature.bind(**given)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the component {name}: {error}", kind="bad-props") from error
    return partial(agent, *bound.args, **bound.kwargs)


def always(config: AgentConfig) -> Component:
    """Return the component of sessions that have one configuration, whatever props a log has."""

    def component(**_props: Any) -> AgentConfig:
        return config

    return component
