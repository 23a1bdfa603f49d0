"""What a user tells agentsdir about the programs behind providers: config.toml, hooks, answers."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from stub_client import published
from typist import Typist

from agentsdir.adapters import processes
from agentsdir.adapters.protocol import Decision, ToolRequest
from agentsdir.cli.environment import Environment
from agentsdir.cli.tool_confirmation import ToolConfirmation
from agentsdir.formats.errors import HookFailed
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.schemas import check

TELLING = """
import json
from agentsdir.adapters.protocol import Architecture, NativeFile, ToolRequest
from agentsdir.adapters.recorded import RecordedReader, RecordedTranscript
from agentsdir.formats import blocks as stream


class Session(StubSession):
    def __init__(self, spec):
        super().__init__(spec)
        self.transcript = RecordedTranscript(spec)

    def send(self, content):
        spec, host = self.spec, self.spec.host
        yield self.transcript.prompt(content, spec.now())
        asked = ToolRequest("Bash", "t1", {"command": "rm -r /"}, "main")
        told = {
            "command": host.command,
            "environment": dict(host.environment),
            "marks": dict(host.marks),
            "mode": host.permission_mode,
            "model": spec.model,
            "home": str(host.home),
            "decision": host.confirm(asked),
        }
        block = self.transcript.block("assistant_text", "a", spec.now(), content=json.dumps(told))
        yield stream.block_complete("a", block)


class Provider(StubProvider):
    def create(self, spec):
        return Session(spec)


ARCHITECTURE = Architecture("telling", "telling-cli", "a test's", RecordedReader(), Provider())
"""


@pytest.fixture
def telling(shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a command line with a provider that tells what it was handed."""
    with published(tmp_path / "site", monkeypatch, "telling", TELLING):
        yield shell


def configure(shell: Any, text: str) -> Path:
    """Write config.toml."""
    path: Path = shell.home / ".config" / "agentsdir" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def hook(shell: Any, script: str, *, agent: str = "", mode: int = 0o700) -> Path:
    """Write a tool-confirmation hook: for all agents, or for one."""
    folder: Path = shell.home / ".config" / "agentsdir" / "hooks"
    folder = folder / "agents" / agent if agent else folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tool-confirmation"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(mode)
    return path


def told(shell: Any, *arguments: str, err: str = "") -> dict[str, Any]:
    """Make an agent, send it something, and return what its provider tells."""
    agent = shell.new("--provider", "telling", *arguments)
    done = shell("send", "--json", agent, "hi")
    assert done.code == 0, done
    assert err in done.err
    found: dict[str, Any] = orjson.loads(done.json["response"])
    return found


CONFIG = """
[providers.telling]
command = ["/opt/client", "--flag"]
args = ["--more"]
permission_mode = "acceptEdits"
model = "big"

[providers.telling.env]
KEY = "value"

[providers.other]
command = "other"
"""


def test_a_provider_is_handed_what_config_toml_says_of_it(telling: Any) -> None:
    """Program, arguments, variables, mode and model; and marks that say whose turn it is."""
    configure(telling, CONFIG)
    found = told(telling)
    assert found["command"] == ["/opt/client", "--flag", "--more"]
    assert found["environment"] == {"KEY": "value"}
    assert (found["mode"], found["model"]) == ("acceptEdits", "big")
    assert found["home"] == str(telling.home)
    assert set(found["marks"]) == {"AGENTSDIR_ROOT", "AGENTSDIR_AGENT", "AGENTSDIR_TURN"}
    assert found["marks"]["AGENTSDIR_ROOT"] == str(telling.root.resolve())
    assert told(telling, "--model", "small")["model"] == "small"


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("", []),
        ('command = "client"', ["client"]),
        ('args = ["-x"]', ["telling", "-x"]),
        ('command = ""', []),
    ],
)
def test_a_command_may_be_left_out(telling: Any, said: str, command: list[str]) -> None:
    """Then it is the provider's own name."""
    configure(telling, f"[providers.telling]\n{said}\n")
    assert told(telling)["command"] == command


BAD = {
    "no TOML": ("providers = [", "is not TOML"),
    "no UTF-8": ("# \udcff", "is not TOML"),
    "an unknown table": ("[hooks]\n", "an unknown key hooks"),
    "an unknown key": (
        "[providers.telling]\ncomand = 'x'",
        "an unknown key providers.telling.comand",
    ),
    "an unknown key of another": ("[providers.x]\ny = 1", "an unknown key providers.x.y"),
    "no table": ("providers = 3", "which is no table"),
    "a command of numbers": ("[providers.telling]\ncommand = [1]", "no list of strings"),
    "a NUL": ('[providers.telling]\ncommand = "a\\u0000b"', "no list of strings"),
    "a model that is a list": ("[providers.telling]\nmodel = []", "which is no string"),
    "a variable that is a number": ("[providers.telling.env]\nA = 1", "which is no variable"),
    "a variable with =": ("[providers.telling.env]\n'A=B' = 'x'", "which is no variable"),
}


@pytest.mark.parametrize(("text", "reason"), BAD.values(), ids=BAD)
def test_a_damaged_config_starts_nothing_and_says_why(telling: Any, text: str, reason: str) -> None:
    """Exit 12, with the file and the reason; other commands do not read it."""
    path = configure(telling, "")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    agent = telling.new("--provider", "telling")
    done = telling("send", "--json", agent, "hi")
    assert (done.code, done.error["kind"]) == (12, "bad-config")
    assert str(path) in done.error["message"]
    assert reason in done.error["message"]
    telling.ok("suspend", agent)
    telling.ok("send", telling.new(), "hi")  # echo runs no program


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_config_that_others_can_write_is_refused(telling: Any, mode: int) -> None:
    """A user who can write it could have anything run."""
    configure(telling, CONFIG).chmod(mode)
    agent = telling.new("--provider", "telling")
    done = telling("send", "--json", agent, "hi")
    assert done.error["kind"] == "bad-config"
    assert f"its mode is {mode:04o}" in done.error["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_config_of_another_user_is_refused(telling: Any) -> None:
    """Even of root's own making elsewhere."""
    os.chown(configure(telling, CONFIG), 12345, -1)
    done = telling("send", "--json", telling.new("--provider", "telling"), "hi")
    assert "belongs to another user" in done.error["message"]


def test_the_config_may_be_a_link_and_stand_elsewhere(telling: Any, tmp_path: Path) -> None:
    """As dotfiles often do."""
    path = configure(telling, CONFIG)
    elsewhere = tmp_path / "dotfiles"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert told(telling)["model"] == "big"
    telling.variables["XDG_CONFIG_HOME"] = str(tmp_path / "nothing here")
    assert told(telling)["model"] == ""


def test_the_sender_goes_before_the_agent_and_the_agent_before_the_config(telling: Any) -> None:
    """In what permission mode a turn runs."""
    configure(telling, CONFIG)
    planner = telling.new("--provider", "telling", "--permission-mode", "plan")
    said = telling("send", "--json", planner, "hi").json["response"]
    assert orjson.loads(said)["mode"] == "plan"
    arguments = ("--permission-mode", "bypassPermissions")
    said = telling("send", "--json", *arguments, planner, "hi").json["response"]
    assert orjson.loads(said)["mode"] == "bypassPermissions"
    page = telling.ok("inspect", "--json", planner).json
    assert (page["permissionMode"], page["process"]) == ("plan", None)


def test_a_message_keeps_the_mode_it_was_sent_with_if_a_log_may_ask_for_it(telling: Any) -> None:
    """Any process may run it; what would grant more goes for the sender's own turn alone."""
    agent = telling.new("--provider", "telling")
    with locks.hold(AgentPaths(telling.folder(agent), agent).turn):
        for mode in ("plan", "acceptEdits"):
            done = telling("send", "--permission-mode", mode, "--wait", "0", agent, mode)
            assert done.code == 11

    done = telling("send", "--no-message", "--json", agent)

    ran = [json.loads(row["response"])["mode"] for row in done.rows]
    assert ran == ["plan", ""]
    log = (telling.folder(agent) / "events.jsonl").read_text()
    assert '"permission_mode":"acceptEdits"' not in log
    forged = {"message_id": "f" * 24, "sender": "cli", "kind": "user",
              "content": [{"type": "text", "text": "hi"}], "permission_mode": "yolo"}  # fmt: skip
    with write_agent(AgentPaths(telling.folder(agent), agent)) as writer:
        writer.append("message.enqueued", forged, "2026-01-02T03:04:05.000000Z")
    row = telling("send", "--no-message", "--json", agent).json
    assert json.loads(row["response"])["mode"] == ""


def test_no_log_grants_a_permission_mode(telling: Any) -> None:
    """`new` writes none, and one that was edited in is refused, unless the sender says."""
    done = telling("new", "--provider", "telling", "--permission-mode", "acceptEdits", "--json")
    assert (done.code, done.error["kind"]) == (2, "permission-mode")
    assert "config.toml" in done.error["hint"]
    agent = telling.new("--provider", "telling", "--permission-mode", "plan")
    log = telling.folder(agent) / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"plan"', b'"bypassPermissions"'))
    done = telling("send", "--json", agent, "hi")
    assert (done.code, done.error["kind"]) == (14, "permission-mode")
    assert telling("send", "--permission-mode", "default", agent, "hi").code == 0


def test_no_log_gives_a_program_options_of_its_own(telling: Any) -> None:
    """A bundle's log could otherwise have it run anything."""
    agent = telling.new("--provider", "telling")
    log = telling.folder(agent) / "events.jsonl"
    said = b'"options":{"settings":"hooks"}'
    log.write_bytes(log.read_bytes().replace(b'"options":{}', said))
    done = telling("send", "--json", agent, "hi")
    assert (done.code, done.error["kind"]) == (14, "bad-options")


def test_a_permission_mode_means_nothing_to_a_provider_without_a_program(shell: Any) -> None:
    """It is refused, before anything is recorded."""
    assert shell("new", "--permission-mode", "plan").code == 2
    agent = shell.new()
    before = (shell.folder(agent) / "events.jsonl").read_bytes()
    assert shell("send", "--permission-mode", "plan", agent, "hi").code == 2
    assert (shell.folder(agent) / "events.jsonl").read_bytes() == before


def test_nothing_executable_is_taken_from_a_root(telling: Any) -> None:
    """Neither a config nor a hook; not from its settings either."""
    agent = telling.new("--provider", "telling")
    for folder in (telling.root, telling.root / "agentsdir", telling.folder(agent)):
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(CONFIG)
        (folder / "hooks").mkdir()
        (folder / "hooks" / "tool-confirmation").write_text("#!/bin/sh\nexit 0\n")
        (folder / "hooks" / "tool-confirmation").chmod(0o700)
    done = telling("send", "--json", agent, "hi")
    assert done.err.startswith("agentsdir: Bash is denied: there is neither a tool-confirmation")
    found = orjson.loads(done.json["response"])
    assert (found["command"], found["model"]) == ([], "")
    assert found["decision"][0] is False


# Hooks.

ANSWERS = {
    "nothing": ("exit 0", [True, "", None]),
    "allow": ('echo \'{"behavior": "allow"}\'', [True, "", None]),
    "another input": (
        'echo \'{"behavior": "allow", "updatedInput": {"command": "ls"}}\'',
        [True, "", {"command": "ls"}],
    ),
    "deny": ('echo \'{"behavior": "deny", "message": "not here"}\'', [False, "not here", None]),
    "an exit code": ("echo 'too dangerous' >&2; exit 3", [False, "too dangerous", None]),
}


@pytest.mark.parametrize(("script", "decision"), ANSWERS.values(), ids=ANSWERS)
def test_a_hook_answers_for_the_user(telling: Any, script: str, decision: list[Any]) -> None:
    """By its exit code and its output."""
    hook(telling, script)
    assert told(telling)["decision"] == [*decision, ""]


def test_a_hook_is_handed_the_call_and_whose_it_is(telling: Any, tmp_path: Path) -> None:
    """One JSON object on standard input; an agent's own hook goes before the one for all."""
    hook(telling, "exit 1")
    hook(telling, f"cat > {tmp_path}/asked", agent="demo")
    marks = told(telling, "--name", "demo")["marks"]
    asked = json.loads((tmp_path / "asked").read_text())
    assert check("tool-request", asked) == []
    assert asked["agent_id"] == marks["AGENTSDIR_AGENT"]
    assert (asked["tool_name"], asked["input"]) == ("Bash", {"command": "rm -r /"})
    assert told(telling)["decision"][0] is False


def failing_hooks(shell: Any, how: str) -> None:
    """Put a hook there that gives no answer."""
    if how == "not executable":
        hook(shell, "exit 0", mode=0o600)
    elif how == "written by all":
        hook(shell, "exit 0", mode=0o777)
    elif how == "a folder":
        hook(shell, "exit 0").unlink()
        (shell.home / ".config/agentsdir/hooks/tool-confirmation").mkdir()
    elif how == "a dead link":
        hook(shell, "exit 0").unlink()
        (shell.home / ".config/agentsdir/hooks/tool-confirmation").symlink_to("/nowhere/at/all")
    elif how == "no program":
        hook(shell, "exit 0").write_text("#!/no/such/interpreter\n")
    elif how == "killed":
        hook(shell, "kill -9 $$")
    else:
        hook(shell, f"echo '{how}'")


@pytest.mark.parametrize(
    "how",
    [
        *("not executable", "written by all", "a folder", "a dead link", "no program", "killed"),
        *("rubbish", "[]", '{"behavior": "maybe"}', '{"behavior": "allow", "updatedInput": 3}'),
        '{"behavior": "deny", "message": 3}',
    ],
)
def test_a_hook_that_gives_no_answer_denies_and_is_recorded(telling: Any, how: str) -> None:
    """Said on stderr, and `hook.failed` in the log; the turn goes on."""
    failing_hooks(telling, how)
    found = told(telling, err="Bash is denied: ")
    assert found["decision"][0] is False
    agent = found["marks"]["AGENTSDIR_AGENT"]
    records = (telling.folder(agent) / "events.jsonl").read_bytes().splitlines()
    (failed,) = [e["data"] for e in map(orjson.loads, records) if e["event"] == "hook.failed"]
    assert failed["hook"] == "tool-confirmation"
    assert check("event-hook-failed", failed) == []


def test_what_a_hook_leaves_running_holds_no_turn_and_ends_with_it(telling: Any) -> None:
    """It has said what it had to say."""
    noted = telling.home / "pid"
    hook(telling, f'sleep 600 & echo $! > {noted}; echo \'{{"behavior": "allow"}}\'')
    agent = telling.new("--provider", "telling")
    said = telling.ok("send", "--json", agent, "hi").json["response"]
    assert orjson.loads(said)["decision"][0] is True
    # It was killed, and is gone once the system gets round to it.
    deadline = time.monotonic() + 20
    while processes.find(int(noted.read_text())) is not None:
        assert time.monotonic() < deadline


def test_no_question_is_asked_for_a_background_agent(telling: Any) -> None:
    """Its calls are denied, whatever hooks there are."""
    hook(telling, "exit 0")
    parent = telling.new("--provider", "telling", "--name", "parent")
    child = ("--type", "subagent", "--parent", parent, "--name", "child")
    assert told(telling, *child)["decision"][0] is False


def confirmation(shell: Any, *, tty: bool, terminal: Path) -> ToolConfirmation:
    """Return what answers for an agent, with a terminal of the test's own."""
    from agentsdir.engine.lookup import find_agent
    from agentsdir.formats.store.agent import read_agent
    from agentsdir.formats.store.layout import Layout

    err: Any = Terminal(tty=tty)
    env = Environment(
        io.BytesIO(), sys.stdout, err, {}, shell.cwd, shell.home, root=str(shell.root)
    )
    env.terminal = terminal
    state = read_agent(find_agent(Layout(shell.root), shell.new())).state
    return ToolConfirmation(env, state)


class Terminal:
    """A standard stream that may say that it is a terminal."""

    def __init__(self, *, tty: bool) -> None:
        self.tty = tty
        self.text = ""

    def isatty(self) -> bool:
        """Say what the test wants."""
        return self.tty

    def write(self, text: str) -> None:
        """Keep what is said."""
        self.text += text


REQUEST = ToolRequest(
    "Bash\x1b[2J", "t1", {"command": "echo \x9b31m" + "x" * 9000 + " the end"}, "main"
)


ASKS = "Allow? [y/N/?] "


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (b"y\n", Decision(True)),
        (b"Yes\n", Decision(True)),
        (b"\n", Decision(False, "the user said no")),
        (b"no\n", Decision(False, "the user said no")),
        (b"n use  make\n", Decision(False, "the user said no: use  make")),
    ],
)
def test_the_person_at_the_terminal_is_asked(shell: Any, answer: bytes, decision: Decision) -> None:
    """Agent, tool, folder and input are shown so that none drives the screen."""
    with Typist(answer, prompt=ASKS) as person:
        asking = confirmation(shell, tty=True, terminal=person.terminal)
        asking._state.name = "fixer\nAllow? [y/N/?] y\n\x1b[2J"
        assert asking(REQUEST) == decision
    shown = person.shown
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    whose = f"agent fixer Allow? [y/N/?] y \\x1b[2J ({asking._state.agent_id}, echo)"
    assert f"{whose} wants to use Bash\\x1b[2J in {shell.cwd}:\n" in shown
    assert "lines are not shown: v shows them" in shown
    assert f"the end\n  y yes · n [REASON] no · v show all · ? help\n{ASKS}" in shown


def test_nothing_that_was_typed_before_a_question_answers_it(shell: Any) -> None:
    """Neither whole lines typed ahead, nor half a line, nor the rest of the answer before."""
    with Typist(b"n\n", b"n\n", prompt=ASKS) as person:
        asking = confirmation(shell, tty=True, terminal=person.terminal)
        person.type(b"y\ny\ny")
        assert asking(REQUEST).allowed is False
        person.type(b"y\ny")
        assert asking(REQUEST).allowed is False


def test_several_lines_at_once_are_no_answer(shell: Any) -> None:
    """What is pasted into a question is thrown away, and the question asked again."""
    with Typist(b"y\nls\n", b"n\n", prompt=ASKS) as person:
        asking = confirmation(shell, tty=True, terminal=person.terminal)
        assert asking(REQUEST).allowed is False
    assert "Several lines came at once" in person.shown


def test_what_is_no_answer_is_asked_again_and_help_says_what_is(shell: Any) -> None:
    """A mistyped key is neither a yes nor a no."""
    with Typist(b"yy\n", b"?\n", b"t\n", b"y\n", prompt=ASKS) as person:
        asking = confirmation(shell, tty=True, terminal=person.terminal)
        assert asking(REQUEST) == Decision(True)
    assert person.shown.count("That is no answer: ") == 2
    assert "n REASON" in person.shown


def test_a_long_call_is_shown_whole_on_demand(shell: Any) -> None:
    """By the user's pager, which gets it without control characters."""
    with Typist(b"v\n", b"n\n", prompt=ASKS) as person:
        asking = confirmation(shell, tty=True, terminal=person.terminal)
        shown = shell.home / "shown"
        asking._env.variables = {"PAGER": f"sh -c 'cat > {shown}'", "PATH": os.environ["PATH"]}
        assert asking(REQUEST).allowed is False
    assert "x" * 9000 + " the end" in shown.read_text()
    assert "\x9b" not in shown.read_text()


def test_a_denial_is_said_and_stands_in_the_result(telling: Any) -> None:
    """By the tool, the call and the reason that the hook gave."""
    hook(telling, "echo 'not on a Sunday' >&2; exit 1")
    agent = telling.new("--provider", "telling")
    done = telling("send", "--json", agent, "hi")
    assert done.err == "agentsdir: Bash is denied: not on a Sunday\n"
    assert done.json["denials"] == [
        {
            "toolName": "Bash",
            "toolUseId": "t1",
            "conversationId": "main",
            "reason": "not on a Sunday",
        }
    ]
    assert check("turn-result", done.json) == []
    hook(telling, "exit 0")
    assert telling.ok("send", "--json", agent, "hi").json["denials"] == []


def test_no_question_is_asked_without_a_terminal(shell: Any, tmp_path: Path) -> None:
    """No terminal behind stderr, or none that opens: the call is denied."""
    silent = confirmation(shell, tty=False, terminal=Path("/dev/null"))
    assert silent(REQUEST) == Decision(False, silent(REQUEST).reason)
    assert confirmation(shell, tty=True, terminal=tmp_path / "gone")(REQUEST).allowed is False


def test_a_name_that_leads_out_of_the_hooks_is_none(shell: Any, tmp_path: Path) -> None:
    """An agent's name comes from its log."""
    hook(shell, "exit 1")
    asking = confirmation(shell, tty=False, terminal=tmp_path)
    asking._state.name = "../../../.."
    assert asking(REQUEST).allowed is False
    failing_hooks(shell, "a dead link")
    with pytest.raises(HookFailed):
        asking(REQUEST)
    assert stat.S_ISLNK((shell.home / ".config/agentsdir/hooks/tool-confirmation").lstat().st_mode)


def test_a_hook_that_sends_to_its_own_agent_is_refused_at_once(telling: Any) -> None:
    """Its turn waits for the hook, so the hook must not wait for the turn."""
    run = f"{sys.executable} -m agentsdir.cli.main"
    hook(
        telling,
        f"cd {telling.cwd}; {run} send $AGENTSDIR_HOOK hi >&2 </dev/null; echo $? >&2; exit 1",
    )
    telling.variables.update(HOME=str(telling.home), PATH=os.environ["PATH"])
    agent = telling.new("--provider", "telling")
    done = telling("send", "--json", agent, "hi")
    (denied,) = done.json["denials"]
    assert f"agent {agent} waits for the hook that runs this" in denied["reason"]
    assert denied["reason"].endswith("11")
