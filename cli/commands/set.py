"""`agentsdir set`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsdir.adapters.protocol import RECORDABLE_MODES
from agentsdir.cli import options
from agentsdir.cli.agents import budget_lines
from agentsdir.cli.environment import Environment
from agentsdir.cli.grants import Mode, agent_scope, change_grants, granted_mode, grants_path
from agentsdir.cli.naming import find_agent
from agentsdir.cli.options import read_pairs
from agentsdir.cli.output import note, one_line, print_document, print_text, wants_json
from agentsdir.cli.prompts import check_text, text_or_file
from agentsdir.cli.services import services_of
from agentsdir.engine.budget import budget_report, parse_budget
from agentsdir.engine.lookup import list_row
from agentsdir.engine.settings import Changes, change_settings, check_mode, current_settings
from agentsdir.formats.errors import UsageError
from agentsdir.formats.store.agent import read_agent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState

KEYS = ("model", "permission-mode", "cwd", "system", "fallback", "budget")


def run(
    ctx: typer.Context,
    agent: options.Agent,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help=f"KEY is one of {', '.join(KEYS)}"),
    ] = None,
    wait: options.WaitForTurn = 0,
    as_json: options.JsonRow = False,
) -> None:
    """Change settings of an agent, from its next turn on; without any, show them.

    \b
    Examples:
      agentsdir set fox
      agentsdir set fox model=opus system='Be brief.'
      agentsdir set fox system=@prompt.md cwd=~/moved/project
      agentsdir set fox permission-mode=acceptEdits
      agentsdir set fox fallback=gemini,echo
      agentsdir set fox budget=tokens:200k,turns:50,seconds:600,cost:2.50/day
      agentsdir set fox model= budget=

    KEY= takes a setting back to its default. Several at once are one record of the agent's log.

    A permission mode that lets the agent do more than to ask or to plan stands in no log. It is
    kept in your own configuration, for this agent on this machine, and `agentsdir permissions`
    shows it.

    A budget is what all turns of the agent may take: tokens, turns and seconds in its life, and US
    dollars (cost) in a day. When it is spent, no turn begins (exit 13), and messages wait.

    After `cwd=`, the client's session goes on in the new folder, by `send`, `agentsdir open` and
    `claude --resume ID`. `claude -c` there may not find it. A turn cannot change settings (exit
    13).
    """
    env: Environment = ctx.obj
    given = read_pairs("set", values or ())
    if unknown := sorted(set(given) - set(KEYS)):
        raise UsageError(f"there is no setting {unknown[0]!r}", hint=f"known: {', '.join(KEYS)}")
    if given:
        env.check_outside_turn("the settings of an agent")
    mode = given.pop("permission-mode", None)
    changes = _changes(env, given)
    paths = find_agent(env, agent)
    if not given and mode is None:
        _show(env, services_of(env), paths, as_json=as_json)
        return
    env.layout.check_version(writing=True)
    services = services_of(env)
    env.count_waits(wait or None)
    words = check_mode(read_agent(paths).state, mode) if mode else ""
    is_granted = mode is not None and mode not in ("", *RECORDABLE_MODES)
    if not is_granted:
        changes = changes._replace(permission_mode=mode)
    state = change_settings(services, paths, changes, wait=wait)
    if mode is not None:
        _grant(env, services, paths, state, mode if is_granted else "")
    if is_granted:
        _explain(env, paths, state, str(mode), words)
    if as_json:
        durability = services.disk.durability
        print_document(env, {**list_row(paths, state), "durability": durability})


def _changes(env: Environment, given: Mapping[str, str]) -> Changes:
    """Return what was given as settings of the log. Raises `UsageError`."""
    for value in given.values():
        check_text(value)
    changes = Changes(model=given.get("model"))
    if "cwd" in given:
        folder = _folder(env, given["cwd"])
        if not given["cwd"] or not folder.is_dir():
            raise UsageError(f"cwd={given['cwd']} is no folder", hint="cwd=. is this one")
        changes = changes._replace(cwd=str(folder.resolve()))
    if "system" in given:
        changes = changes._replace(system_prompt=text_or_file(env, given["system"]))
    if "fallback" in given:
        names = given["fallback"].replace(",", " ").split()
        changes = changes._replace(fallbacks=tuple(names))
    if "budget" in given:
        changes = changes._replace(budget=parse_budget(given["budget"]))
    return changes


def _folder(env: Environment, said: str) -> Path:
    """Return a folder of the command line; a shell leaves the ~ of `cwd=~/x` as it is, or not."""
    first, _, rest = said.partition("/")
    return env.home / rest.lstrip("/") if first == "~" else env.cwd / said


def _grant(
    env: Environment, services: Services, paths: AgentPaths, state: AgentState, mode: str
) -> None:
    """Keep a mode for the agent in the user's configuration; an empty one removes it."""
    if not mode and not granted_mode(env, paths, state):
        return
    provider = state.session.provider_name
    entry = Mode(agent_scope(paths, state), provider, mode, services.now())
    change_grants(env, lambda grants: grants.with_mode(entry))


def _explain(env: Environment, paths: AgentPaths, state: AgentState, mode: str, words: str) -> None:
    does = f"{words} (permission mode {mode})" if words else f"runs in the mode {mode}"
    note(env, f"from its next turn on, {state.name or paths.id} {does}, in {state.cwd}")
    note(
        env,
        f"only you have allowed that, and only to this agent: it stands in {grants_path(env)}; "
        f"`agentsdir set {paths.id} permission-mode=` takes it back",
    )


def _show(env: Environment, services: Services, paths: AgentPaths, *, as_json: bool) -> None:
    state = read_agent(paths).state
    has = current_settings(paths, state)
    granted = granted_mode(env, paths, state)
    budget = budget_report(paths, state, services.now(), services.local_day)
    if wants_json(env, as_json):
        document: dict[str, Any] = {
            "type": "agent-settings",
            "agentId": paths.id,
            "name": state.name,
            "provider": state.session.provider_name,
            "model": has.model,
            "permissionMode": granted or has.permission_mode or None,
            "cwd": has.cwd,
            "systemPrompt": has.system_prompt,
            "fallbacks": has.fallbacks,
            "budget": budget,
        }
        print_document(env, document)
        return
    mode = f"{granted} (allowed by you: {grants_path(env)})" if granted else has.permission_mode
    rows = [
        ("model", one_line(has.model) or "(its provider's)"),
        ("permission-mode", mode or "(that of config.toml, or else its client's)"),
        ("cwd", one_line(has.cwd)),
        ("system", one_line(has.system_prompt) or "(none)"),
        ("fallback", one_line(",".join(has.fallbacks)) or "(those of settings.toml)"),
        *(budget_lines(budget) if budget else [("budget", "(no limit)")]),
    ]
    print_text(env, "".join(f"{name:<15}  {value}\n" for name, value in rows))
