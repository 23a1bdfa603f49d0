"""`agentsdir permissions`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from agentsdir.adapters.protocol import PermissionProvider
from agentsdir.cli import options
from agentsdir.cli.agent_table import age, folder_text
from agentsdir.cli.colour import style_of
from agentsdir.cli.confirm import confirm
from agentsdir.cli.environment import Environment
from agentsdir.cli.grants import (
    Grants,
    Mode,
    Rule,
    agent_scope,
    change_grants,
    folder_scope,
    read_grants,
    rule_from,
)
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import one_line, print_json, print_text, screen_width, wants_json
from agentsdir.cli.services import services_of
from agentsdir.cli.table import Column, Table, plain
from agentsdir.engine.providers import provider_of
from agentsdir.formats.errors import AgentsdirError, UsageError
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentsdir.cli.grants import Scope

ACTIONS = ("list", "allow", "rm")
COLUMNS = (
    Column("id", style="tool"),
    Column("allows", least=12, style="strong"),
    Column("provider", least=6, most=16),
    Column("for", least=12),
    Column("age", style="faint"),
)


def run(
    ctx: typer.Context,
    action: Annotated[
        str,
        typer.Argument(
            metavar="[list|allow|rm]",
            help="List what is allowed, allow an agent something, or take that back",
        ),
    ] = "list",
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD...]",
            help="list: an AGENT; allow: AGENT RULE..., with --here RULE...; rm: ID...",
        ),
    ] = None,
    here: Annotated[
        bool,
        typer.Option("--here", help="Allow, or list, for agents that you make in this folder"),
    ] = False,
    provider: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The provider whose client the rule is for",
            show_default="the agent's, or else that of a new agent",
        ),
    ] = "",
    yes: Annotated[
        int,
        typer.Option(
            "--yes", "-y", count=True, help="Twice: allow any command without being asked twice"
        ),
    ] = 0,
    as_json: options.TerminalJsonLines = False,
) -> None:
    """Show what agents may do without a question, allow them something, or take it back.

    \b
    Examples:
      agentsdir permissions
      agentsdir permissions allow fixer 'Bash(git diff)' WebFetch
      agentsdir permissions allow --here 'Bash(make test)'
      agentsdir permissions rm 5f0c1a7b

    A rule is the name of a tool, or one whole command as Bash(COMMAND): it is no pattern, and
    allows nothing that only begins so. It is kept in your own configuration, and holds for the
    agent as it was made in its agents directory, or for the agents that you make in one folder and
    speak with. It holds for no copy, import, fork or subagent of an agent. A hook that says no goes
    before any rule.

    Gemini CLI asks nothing: it is given the names of the tools when a turn starts, and takes no
    commands. A rule that allows any command, such as Bash, is asked about twice. The tool calls of
    a turn cannot use this command (exit 13).
    """
    env: Environment = ctx.obj
    env.check_outside_turn("what agents are allowed")
    given = tuple(words or ())
    if action not in ACTIONS:
        raise UsageError(f"there is no action {action!r}", hint=f"one of {', '.join(ACTIONS)}")
    if action != "allow" and (provider or yes):
        raise UsageError("--provider and --yes go with allow")
    changed: Sequence[Rule | Mode]
    if action == "allow":
        changed = _allow(env, given, provider=provider, here=here, yes=yes)
    elif action == "rm":
        if here:
            raise UsageError("--here does not go with rm")
        changed = _remove(env, given)
    else:
        changed = _listed(env, given, here=here)
    _print(env, changed, as_json=as_json, removed=action == "rm")


def _listed(env: Environment, words: tuple[str, ...], *, here: bool) -> list[Rule | Mode]:
    grants = read_grants(env)
    entries: list[Rule | Mode] = [*grants.rules, *grants.modes]
    if here:
        if words:
            raise UsageError("--here and AGENT are two ways to say whose are listed; give one")
        scopes = {folder_scope(env.cwd)}
    elif words:
        if len(words) > 1:
            raise UsageError(f"list takes one AGENT, and this is another: {words[1]!r}")
        paths = find_agent(env, words[0])
        scopes = {agent_scope(paths, read_agent(paths).state)}
    else:
        return entries
    return [entry for entry in entries if entry.scope in scopes]


def _allow(
    env: Environment, words: tuple[str, ...], *, provider: str, here: bool, yes: int
) -> list[Rule]:
    services = services_of(env)
    if here:
        scope, whom, rules = folder_scope(env.cwd), f"the agents of {env.cwd}", words
        provider = provider or services.settings.provider or services.default_provider()
    else:
        if not words:
            raise UsageError("no agent is named", hint="give AGENT and RULE, or --here and RULE")
        paths = find_agent(env, words[0])
        state = read_agent(paths).state
        scope, whom, rules = agent_scope(paths, state), f"agent {state.name or paths.id}", words[1:]
        provider = provider or state.session.provider_name
    if not rules:
        raise UsageError("no rule is given", hint="a tool, or one command of it: 'Bash(git diff)'")
    _, reader = provider_of(provider)
    if not reader.runs_program:
        raise UsageError(f"the provider {provider} asks for no permission")
    made: list[Rule] = []
    for text in rules:
        meaning = rule_from(text, reader if isinstance(reader, PermissionProvider) else None)
        if meaning.problem:
            raise UsageError(f"{one_line(text)} is no rule for {provider}: {meaning.problem}")
        if meaning.is_wide:
            _confirm_twice(env, f"{meaning.rule} lets {whom} run any command unasked", yes)
        made.append(Rule(scope, provider, meaning.rule, services.now()))

    def add(grants: Grants) -> Grants:
        for rule in made:
            grants = grants.with_rule(rule)
        return grants

    change_grants(env, add)
    return made


def _confirm_twice(env: Environment, what: str, yes: int) -> None:
    """Raise `AgentsdirError` unless the user says yes twice, with `--yes` or at the terminal."""
    if yes >= 2:
        return
    if not env.stdin.isatty():
        raise UsageError(what, hint="give --yes twice if that is what you want", kind="any-command")
    prompts = ("Allow it? [y/N] ", "Any command, for good? [y/N] ")
    try:
        for prompt in prompts[yes:]:
            if not confirm(env.terminal, [what], prompt, env.notify, asker="agentsdir permissions"):
                raise AgentsdirError("nothing was allowed", kind="declined")
    except OSError as error:
        raise UsageError(
            f"cannot ask at the terminal: {error.strerror}",
            hint="give --yes twice if that is what you want",
        ) from error


def _remove(env: Environment, ids: tuple[str, ...]) -> list[Rule | Mode]:
    if not ids:
        raise UsageError("no permission is named", hint="`agentsdir permissions` shows their ids")
    removed: list[Rule | Mode] = []

    def remove(grants: Grants) -> Grants:
        entries: list[Rule | Mode] = [*grants.rules, *grants.modes]
        for one in ids:
            found = [entry for entry in entries if entry.id == one]
            if not found:
                raise AgentsdirError(
                    f"there is no permission {one}",
                    hint="`agentsdir permissions` shows their ids",
                    kind="no-such-permission",
                )
            removed.extend(found)
        return grants.without(removed)

    change_grants(env, remove)
    return removed


class _Holder(NamedTuple):
    """Whom a grant is for as it is now: the agent's name, and whether the grant holds for it."""

    name: str
    holds: bool


def _holder(scope: Scope) -> _Holder:
    if scope.folder:
        return _Holder("", Path(scope.folder).is_dir())
    try:
        paths = Layout(Path(scope.root)).agent(scope.agent)
        state = read_agent(paths).state
        return _Holder(state.name or "", agent_scope(paths, state) == scope)
    except (AgentsdirError, OSError):  # it is gone, or damaged
        return _Holder("", holds=False)


def _print(
    env: Environment, entries: Sequence[Rule | Mode], *, as_json: bool, removed: bool
) -> None:
    rows = []
    for entry in entries:
        scope = entry.scope
        holder = _holder(scope)
        rows.append(
            {
                "type": "permission",
                "id": entry.id,
                "rule": entry.rule if isinstance(entry, Rule) else None,
                "mode": entry.mode if isinstance(entry, Mode) else None,
                "provider": entry.provider,
                "agentId": scope.agent or None,
                "name": holder.name or None,
                "root": scope.root or None,
                "folder": scope.folder or None,
                "holds": holder.holds and not removed,
                "at": entry.at,
            }
        )
    if wants_json(env, as_json):
        for row in rows:
            print_json(env, row)
    elif rows:
        table = Table(COLUMNS, (), [_cells(env, row) for row in rows], screen_width(env))
        print_text(env, "".join(f"{line}\n" for line in table.lines(style_of(env))))
    else:
        env.notify("nothing is allowed without a question")


def _cells(env: Environment, row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row as the table shows it."""
    whom = folder_text(row["folder"], str(env.home)) if row["folder"] else ""
    whom = whom or plain(row["name"] or row["agentId"])
    return (
        row["id"],
        plain(row["rule"] or f"mode {row['mode']}"),
        plain(row["provider"]),
        whom if row["holds"] else f"{whom} (does not hold)",
        age(row["at"], env.now()),
    )
