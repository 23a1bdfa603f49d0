"""Settings that are changed: what the next turn runs with, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsdir.adapters import registry
from agentsdir.engine.create import fork_agent
from agentsdir.engine.inbox import text_message
from agentsdir.engine.providers import TurnHost, find_provider, session_spec
from agentsdir.engine.settings import Changes, change_settings, check_mode
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.engine.validate.files import validate
from agentsdir.formats.errors import Busy, SessionStateError, UsageError
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.files import Durability

EVERYTHING = Changes(
    cwd="/srv",
    model="opus",
    system_prompt="Be kind.",
    permission_mode="plan",
    fallbacks=("echo",),
    budget={"turns": 5},
)


def change(stage: Any, paths: Any, **values: Any) -> Any:
    """Change settings of an agent."""
    return change_settings(stage.services, paths, Changes(**values))


def next_turn(stage: Any, paths: Any, mode: str = "") -> Any:
    """Return the description of a session as the next turn has it."""
    state = stage.state(paths)
    turn = TurnHost("t" * 24, mode)
    return session_spec(stage.services, paths, state, find_provider(state)[1], turn)


def test_the_next_turn_runs_with_what_was_set(stage: Any) -> None:
    """Not with what the agent was made with; an empty value takes that away, too."""
    paths = stage.new(
        provider="claude", model="haiku", system_prompt="Be brief.", permission_mode="default"
    )
    stage.client = stage.client._replace(
        model="mine", host=stage.client.host._replace(permission_mode="acceptEdits")
    )

    def heard() -> tuple[str, str, str, str]:
        spec = next_turn(stage, paths)
        return spec.model, spec.system_prompt, spec.host.permission_mode, spec.cwd

    assert heard() == ("haiku", "Be brief.", "default", "/")
    change_settings(stage.services, paths, EVERYTHING)
    assert heard() == ("opus", "Be kind.", "plan", "/srv")
    change(stage, paths, model="", system_prompt="", permission_mode="", fallbacks=(), budget={})
    assert heard() == ("mine", "", "acceptEdits", "/srv")
    assert [one["data"]["values"] for one in stage.log(paths)[1:]] == [
        {**EVERYTHING._asdict(), "fallbacks": ["echo"]},
        {"model": "", "system_prompt": "", "permission_mode": "", "fallbacks": [], "budget": {}},
    ]
    assert list(validate([stage.root])) == []


def test_a_mode_of_the_users_goes_before_that_of_the_log(stage: Any) -> None:
    """And that of the turn before both."""
    paths = stage.new(provider="claude", permission_mode="plan")
    stage.client = stage.client._replace(granted_mode="acceptEdits")
    assert next_turn(stage, paths).host.permission_mode == "acceptEdits"
    assert next_turn(stage, paths, "default").host.permission_mode == "default"


def test_what_an_agent_has_already_is_not_recorded(stage: Any) -> None:
    """One record has what is new alone; without that there is none."""
    paths = stage.new(provider="claude", system_prompt="Be brief.")
    change(stage, paths, system_prompt="Be brief.", model="", permission_mode="", budget={})
    assert stage.events(paths) == ["session.created"]
    change(stage, paths, system_prompt="Be brief.", model="opus")
    assert stage.log(paths)[-1]["data"] == {"values": {"model": "opus"}}


def test_session_json_has_the_model_at_once(stage: Any) -> None:
    """Other programs read it there; state.json has it, too, whatever the durability."""
    for durability in Durability.ALL:
        paths = stage.new(provider="claude")
        services = stage.services
        services.disk.durability = durability
        change_settings(services, paths, Changes(model="opus"))
        for path in (paths.session, paths.state):
            assert json.loads(path.read_bytes())["model"] == "opus"
    assert list(validate([stage.root])) == []


def test_only_another_folder_waits_for_the_turn(stage: Any) -> None:
    """All else is recorded while one runs, for the next."""
    paths = stage.new(provider="claude")
    with hold_turn(paths, wait=0):
        change(stage, paths, model="opus", budget={"turns": 3})
        with pytest.raises(Busy):
            change(stage, paths, model="haiku", cwd="/srv")
    state = stage.state(paths)
    assert (state.session.model, state.cwd) == ("opus", "/")


def test_a_closed_agent_keeps_its_settings(stage: Any) -> None:
    """Exit 13, and nothing is recorded."""
    paths = stage.new()
    terminated = {"from": "created", "to": "terminated", "reason": "close"}
    stage.append(paths, "session.state", terminated)
    for values in ({"budget": {"turns": 1}}, {"cwd": "/srv"}):
        with pytest.raises(SessionStateError, match="is closed"):
            change(stage, paths, **values)
    assert stage.events(paths) == ["session.created", "session.state"]


@pytest.mark.parametrize(
    ("provider", "values", "kind"),
    [
        ("echo", {"model": "big"}, "not-heeded"),
        ("echo", {"system_prompt": "Be brief."}, "not-heeded"),
        ("echo", {"permission_mode": "plan"}, "not-heeded"),
        ("echo", {"budget": {"cost": 2}}, "no-cost"),
        ("gemini", {"budget": {"cost": 2}}, "no-cost"),
        ("gemini", {"permission_mode": "manual"}, "permission-mode"),
        ("claude", {"permission_mode": "yolo"}, "permission-mode"),
        ("claude", {"budget": {"cost": 2}, "fallbacks": ("gemini",)}, "no-cost"),
        ("claude", {"fallbacks": ("nobody",)}, "no-such-adapter"),
    ],
)
def test_what_a_provider_does_not_heed_is_refused(
    stage: Any, provider: str, values: dict[str, Any], kind: str
) -> None:
    """And the rest of that command with it."""
    paths = stage.new(provider=provider)
    with pytest.raises(UsageError) as raised:
        change(stage, paths, **values, cwd="/srv")
    assert raised.value.kind == kind
    assert stage.events(paths) == ["session.created"]


def test_who_may_stand_in_must_report_costs_where_money_is_limited(stage: Any) -> None:
    """Whether the agent names it or settings.toml does."""
    paths = stage.new(provider="claude")
    change(stage, paths, budget={"cost": 2.5})
    with pytest.raises(UsageError, match="'gemini', which may stand in for it, reports no cost"):
        change(stage, paths, fallbacks=("gemini",))
    services = stage.services._replace(
        settings=stage.services.settings._replace(fallbacks=("gemini",))
    )
    with pytest.raises(UsageError, match="reports no cost"):
        change_settings(services, paths, Changes(budget={"cost": 3.5}))
    change_settings(services, paths, Changes(model="opus"))


def test_every_mode_of_a_client_is_said_in_words(stage: Any) -> None:
    """Those that a log may have are among them."""
    for name in registry.CLIENTS:
        state = stage.state(stage.new(provider=name))
        provider = registry.get(name).provider
        assert provider is not None
        modes = getattr(provider, "settings").modes  # noqa: B009, no part of the protocol
        assert {"default", "plan"} <= set(modes)
        assert [check_mode(state, mode) for mode in modes] == list(modes.values())
        assert all(modes.values())


def test_a_fork_goes_on_with_what_was_set_and_a_child_with_what_it_inherits(stage: Any) -> None:
    """A fork takes over all of it; a spawned agent the model, the mode and the stand-ins."""
    paths = stage.new(provider="claude", system_prompt="Be brief.", fallbacks=("script",))
    change_settings(stage.services, paths, EVERYTHING)
    made = stage.services.layout.agent(fork_agent(stage.services, paths, login="me").agent_id)
    spec = next_turn(stage, made)
    assert (spec.model, spec.system_prompt, spec.host.permission_mode, spec.cwd) == (
        "opus", "Be kind.", "plan", "/srv"
    )  # fmt: skip
    assert stage.state(made).fallbacks == ["echo"]
    child = create_child(
        stage.services, paths, SpawnRequest(text_message("go")), turn_id=None, sync=False
    )
    created = stage.log(child.paths)[0]["data"]
    assert (created["model"], created["permission_mode"], created["system_prompt"]) == (
        "opus", "plan", ""
    )  # fmt: skip
    assert read_agent(child.paths).state.fallbacks == ["echo"]
    assert list(validate([stage.root])) == []
