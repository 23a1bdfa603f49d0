"""How a session runs, beside what its component says, and what that changes of its agent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import ProviderSettings, settings_of
from agentsdir.engine.app.component import AgentConfig
from agentsdir.engine.extensions import NO_EXTENSIONS
from agentsdir.engine.providers import find_provider
from agentsdir.engine.settings import Changes, current_settings
from agentsdir.formats.errors import AgentsdirError, UsageError

if TYPE_CHECKING:
    from agentsdir.engine.callbacks import Callbacks
    from agentsdir.engine.runner import ExecutionRunner
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState

NO_CALLBACKS = NO_EXTENSIONS.callbacks


class SessionOptions(NamedTuple):
    """How a session runs, beside what its component says.

    Attributes:
        callbacks: called after those of the app; a child has none, and the app's neither.
        runner: None for none.
        ephemeral: whether it ends with its turn.
        defaults: has the provider, model and limit of a configuration that says none.
        overrides: has those in place of what a configuration says.
    """

    callbacks: Callbacks = NO_CALLBACKS
    runner: ExecutionRunner | None = None
    ephemeral: bool = False
    defaults: AgentConfig = AgentConfig()
    overrides: AgentConfig = AgentConfig()

    def over(self, config: AgentConfig) -> AgentConfig:
        """Return a configuration with what goes before and after it.

        A provider of this program is registered: the log has only its name.
        """
        first, last = self.overrides, self.defaults
        provider = first.provider or config.provider or last.provider
        model = first.model or config.model
        if last.provider in ("", provider):  # another one would not know the model
            model = model or last.model
        if not isinstance(provider, str):
            registry.register(provider)
        limit = first.max_ticks or config.max_ticks or last.max_ticks
        return replace(config, provider=provider, model=model, max_ticks=limit)


def changes_to(config: AgentConfig, paths: AgentPaths, state: AgentState) -> Changes:
    """Return what differs in the settings of an agent from what a configuration says.

    Only what a configuration sets is looked at: its empty fields leave those of the agent. What
    its provider does not heed makes no difference, as for a new agent.

    Raises `UsageError` (kind ``provider-differs``) for another provider than the agent's own.
    """
    own = state.session.provider_name
    if config.provider_name not in ("", own):
        raise UsageError(
            f"session {state.name or paths.id} is of the provider {own!r}, and its configuration "
            f"names {config.provider_name!r}",
            hint="a session keeps its provider: another name makes another session, and a "
            "configuration that names none goes on with this one",
            kind="provider-differs",
        )
    has, heeds = current_settings(paths, state), _heeded(state)
    wanted: dict[str, Any] = {
        "cwd": config.cwd,
        "model": config.model if heeds.model else "",
        "system_prompt": config.system if heeds.system_prompt else "",
        "permission_mode": config.permission_mode,
        "fallbacks": list(config.fallbacks),
    }
    differ = {
        name: value for name, value in wanted.items() if value and value != getattr(has, name)
    }
    return Changes(**differ)


def _heeded(state: AgentState) -> ProviderSettings:
    try:
        return settings_of(find_provider(state)[1])
    except AgentsdirError:  # the turn says so, unless another provider stands in
        return ProviderSettings(model=False, system_prompt=False)
