"""grants.json: what this user has allowed agents to do (docs/configuration.md, "Permissions").

Rules say which tool calls run without a question. Modes are the permission modes that a log may not
grant. Both are in the user's configuration and in no root, and hold for one agent as it was made,
or for one folder: a copy of an agent, or an import of it, is another agent.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.adapters.protocol import RuleMeaning
from agentsdir.cli.config import ownership_flaw
from agentsdir.cli.output import note
from agentsdir.engine.result import TERMINAL
from agentsdir.formats import jsontext
from agentsdir.formats.errors import AgentsdirError, Invalid, NotRecorded
from agentsdir.formats.store import files, locks
from agentsdir.formats.store.agent import recorded_creation
from agentsdir.formats.store.derived import encode_document
from agentsdir.formats.store.events import IMPORT
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import MAX_DOCUMENT
from agentsdir.formats.store.log import open_log, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentsdir.adapters.protocol import PermissionProvider, ToolRequest
    from agentsdir.cli.environment import Environment
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState

VERSION = 1
MAX_SIZE = 1024 * 1024
"""The most bytes that grants.json may have."""


class Scope(NamedTuple):
    """Whom a grant is for: an agent, or all agents that work in a folder.

    Attributes:
        root: the real path of the agent's root; empty for a folder.
        agent: the agent's id.
        created: which agent of that id it is: a hash of how its log says that it came about.
        folder: the real path of the folder; empty for an agent.
    """

    root: str = ""
    agent: str = ""
    created: str = ""
    folder: str = ""

    def as_json(self) -> dict[str, str]:
        """Return what grants.json has of it."""
        return {name: value for name, value in self._asdict().items() if value}


class Rule(NamedTuple):
    """A tool, or one command of a tool, that a provider's client may use without a question."""

    scope: Scope
    provider: str
    rule: str
    at: str = ""

    @property
    def id(self) -> str:
        """What names the rule on a command line."""
        return _digest(orjson.dumps([*self.scope, self.provider, self.rule]))[:8]

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it this rule: of two rules with one key there is one."""
        return (*self.scope, self.provider, self.rule)

    def as_json(self) -> dict[str, Any]:
        """Return what grants.json has of it."""
        return {"for": self.scope.as_json(), "provider": self.provider, "rule": self.rule,
                "at": self.at}  # fmt: skip


class Mode(NamedTuple):
    """A permission mode in which an agent's turns run, in the words of a provider's client."""

    scope: Scope
    provider: str
    mode: str
    at: str = ""

    @property
    def id(self) -> str:
        """What names the mode on a command line."""
        return _digest(orjson.dumps([*self.scope, self.provider, None]))[:8]

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it this grant: an agent has one mode with a provider."""
        return (*self.scope, self.provider)

    def as_json(self) -> dict[str, Any]:
        """Return what grants.json has of it."""
        return {"for": self.scope.as_json(), "provider": self.provider, "mode": self.mode,
                "at": self.at}  # fmt: skip


class Grants(NamedTuple):
    """All of grants.json."""

    rules: tuple[Rule, ...] = ()
    modes: tuple[Mode, ...] = ()

    def with_rule(self, rule: Rule) -> Grants:
        """Return the grants with a rule, which replaces the one that is the same."""
        return self._replace(rules=(*(one for one in self.rules if one.key != rule.key), rule))

    def with_mode(self, mode: Mode) -> Grants:
        """Return the grants with a mode, which replaces the agent's; an empty one removes it."""
        others = tuple(one for one in self.modes if one.key != mode.key)
        return self._replace(modes=(*others, mode) if mode.mode else others)

    def without(self, entries: Iterable[Rule | Mode]) -> Grants:
        """Return the grants without some of them."""
        keys = {(type(entry), entry.key) for entry in entries}
        return Grants(
            tuple(rule for rule in self.rules if (Rule, rule.key) not in keys),
            tuple(mode for mode in self.modes if (Mode, mode.key) not in keys),
        )


def agent_scope(paths: AgentPaths, state: AgentState) -> Scope:
    """Return the scope of one agent.

    Its hash is that of the first line of the log; of an imported agent, which has that line from a
    bundle, also of the last record of an import, which this program wrote. Raises `Invalid`.
    """
    parts = []
    with open_log(paths.log) as stream:
        parts.append(stream.readline(MAX_DOCUMENT))
        if state.imported:
            stream.seek(0)
            lines = (line.record for line in read_log(stream, str(paths.log)))
            imports = [
                record
                for record in lines
                if record and record.event == "agent.set" and record.data.get("reason") == IMPORT
            ]
            parts += [orjson.dumps([one.seq, one.ts, one.prev]) for one in imports[-1:]]
    root = paths.folder.parent.parent.resolve()
    return Scope(str(root), paths.id, _digest(b"".join(parts)))


def folder_scope(folder: Path) -> Scope:
    """Return the scope of a folder."""
    return Scope(folder=str(folder.resolve()))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def read_grants(env: Environment, *, quiet: bool = False) -> Grants:
    """Return the user's grants.

    A file that is damaged, or that another user could have written, grants nothing: it is named on
    stderr, and a damaged one is set aside as grants.json.damaged-N.

    Args:
        quiet: do not name one that was named already.
    """
    path = grants_path(env)
    try:
        return decode_grants(_read(path, env.uid))
    except FileNotFoundError:
        return Grants()
    except _Flawed as flawed:
        if not quiet:
            note(env, f"{path} {flawed}, so it grants nothing")
    except ValueError as error:
        note(env, f"{path} {error}, so it grants nothing")
        with suppress(AgentsdirError), _locked(env):
            _set_aside(env, path)
    return Grants()


def change_grants(env: Environment, change: Callable[[Grants], Grants]) -> Grants:
    """Change grants.json under its lock; return what it says now.

    A damaged file is set aside first. Raises `Invalid`, kind ``bad-grants`` for a file that is not
    this program's to write, ``grants-full`` where it would grow beyond `MAX_SIZE`; `NotRecorded`,
    `Uncertain` and `Busy`.
    """
    path = grants_path(env)
    with _locked(env):
        try:
            grants = decode_grants(_read(path, env.uid))
        except FileNotFoundError:
            grants = Grants()
        except _Flawed as flawed:
            raise Invalid(f"{path} {flawed}", hint="mend or remove it", kind="bad-grants") from None
        except ValueError as error:
            note(env, f"{path} {error}, so it grants nothing")
            _set_aside(env, path)
            grants = Grants()
        changed = change(grants)
        if changed != grants:
            data = encode_grants(changed)
            if len(data) > MAX_SIZE:
                raise Invalid(
                    f"{path} would have more than {MAX_SIZE} bytes",
                    hint="take permissions back that are not needed: `agentsdir permissions rm`",
                    kind="grants-full",
                )
            # A link, as dotfiles often are, stays one.
            files.replace_file(Path(os.path.realpath(path)), data, Disk())
    return changed


def grants_path(env: Environment) -> Path:
    """Return the path of grants.json."""
    return env.config_folder / "grants.json"


def scopes_for(paths: AgentPaths, state: AgentState) -> frozenset[Scope]:
    """Return the scopes whose rules hold for an agent. Raises `Invalid`."""
    scopes = [agent_scope(paths, state)]
    if takes_folder_rules(paths, state):
        scopes.append(folder_scope(Path(folder_of(state))))
    return frozenset(scopes)


def mode_for(grants: Grants, paths: AgentPaths, state: AgentState) -> str:
    """Return the permission mode that an agent has been given; empty for none. Raises `Invalid`."""
    provider = state.session.provider_name
    found = [one for one in grants.modes if (one.provider, one.scope.agent) == (provider, paths.id)]
    if not found:
        return ""
    scope = agent_scope(paths, state)
    return next((one.mode for one in found if one.scope == scope), "")


def granted_mode(env: Environment, paths: AgentPaths, state: AgentState) -> str:
    """Return the permission mode that the user has given an agent; empty for none."""
    return mode_for(read_grants(env), paths, state)


ALL_TOOLS = "*"
"""The rule that allows every call."""
_MAX_RULE = 4096
"""Characters of a rule that is kept."""
is_tool_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}").fullmatch


def rules_allowing(request: ToolRequest) -> set[str]:
    """Return the rules of which each would allow a call. They are compared as they stand."""
    if not is_tool_name(request.tool_name):  # it may be spelled like the rule of a command
        return {ALL_TOOLS}
    return {request.tool_name, request.rule, ALL_TOOLS} - {""}


def kept_rule(request: ToolRequest) -> str:
    """Return the rule that is kept when a call is to be allowed from now on; empty for none."""
    rule = request.rule
    is_kept = len(rule) <= _MAX_RULE and jsontext.is_exact(rule)
    return rule if is_kept and is_tool_name(request.tool_name) else ""


def rule_from(text: str, provider: PermissionProvider | None) -> RuleMeaning:
    """Return what a rule means that the user typed.

    Args:
        provider: reads the rules of its client; None where nothing is known of them.
    """
    if not is_tool_name(text.partition("(")[0]) and text != ALL_TOOLS:
        return RuleMeaning(text, problem="it does not begin with the name of a tool")
    if len(text) > _MAX_RULE or not jsontext.is_exact(text):
        return RuleMeaning(text, problem=f"it is no text of at most {_MAX_RULE} characters")
    if provider is None:
        return RuleMeaning(text, is_wide=text == ALL_TOOLS)
    return provider.read_rule(text)


def folder_of(state: AgentState) -> str:
    """Return the folder in which an agent's turns run."""
    return str(state.native.get("cwd") or state.cwd)


def takes_folder_rules(paths: AgentPaths, state: AgentState) -> bool:
    """Tell whether the rules of its folder hold for an agent.

    They do for one that the user made there to speak with. They do not for what came in a bundle,
    was spawned or forked, or speaks with strangers; nor where a link has taken the folder's place,
    since that may lead to a folder with other rules.
    """
    creation = recorded_creation(paths)
    folder = folder_of(state)
    return (
        os.path.realpath(folder) == folder
        and not state.imported
        and (state.descriptor.get("type"), state.descriptor.get("connector")) == ("user", TERMINAL)
        and not state.parent
        and creation is not None
        and "forked_from" not in creation.data
    )


class _Flawed(Exception):
    """The file is not this program's to use, or to set aside."""


def _read(path: Path, uid: int) -> bytes:
    """Return the file's bytes. Raises `FileNotFoundError`, and `_Flawed`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _Flawed(f"cannot be read: {error.strerror}") from error
    if flaw := ownership_flaw(os.fstat(descriptor), uid):
        os.close(descriptor)
        raise _Flawed(flaw)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(MAX_SIZE + 1)


def encode_grants(grants: Grants) -> bytes:
    """Return what grants.json has for these grants."""
    document = {
        "version": VERSION,
        "rules": [rule.as_json() for rule in grants.rules],
        "modes": [mode.as_json() for mode in grants.modes],
    }
    return encode_document(document)


def decode_grants(data: bytes) -> Grants:
    """Return what the file says. Raises `ValueError` with the damage, and `_Flawed`."""
    if len(data) > MAX_SIZE:
        raise ValueError(f"has more than {MAX_SIZE} bytes")
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(document, dict) or type(document.get("version")) is not int:
        raise ValueError("holds no grants")
    if document["version"] != VERSION:
        raise _Flawed(f"has the version {document['version']}, which this program does not know")
    try:
        return Grants(
            tuple(Rule(*_row(row, "rule")) for row in document["rules"]),
            tuple(Mode(*_row(row, "mode")) for row in document["modes"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError("holds no grants") from error


def _row(row: Any, what: str) -> tuple[Scope, str, str, str]:
    scope = Scope(**row["for"])
    texts = (row["provider"], row[what], row["at"])
    if not all(isinstance(text, str) for text in (*scope, *texts)):
        raise TypeError(what)
    if bool(scope.folder) == bool(scope.root and scope.agent and scope.created):
        raise TypeError(what)  # for no agent and no folder, or for both
    return scope, *texts


def _set_aside(env: Environment, path: Path) -> None:
    """Give a damaged file another name. The caller holds the lock."""
    with suppress(FileNotFoundError):
        try:
            decode_grants(_read(path, env.uid))
        except (ValueError, _Flawed):
            pass
        else:
            return  # another process has written a sound one meanwhile
        number = 1
        while os.path.lexists(other := path.with_name(f"{path.name}.damaged-{number}")):
            number += 1
        try:
            path.rename(other)
        except OSError as error:
            raise NotRecorded(f"cannot set {path} aside: {error.strerror}") from error
        note(env, f"it is {other} now")


@contextmanager
def _locked(env: Environment) -> Iterator[None]:
    files.make_folder(env.config_folder, Disk())
    env.count_waits()
    path = env.config_folder / ".lock"
    with locks.hold(path, brief=True, what=str(grants_path(env))):
        yield
