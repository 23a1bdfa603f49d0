"""`open`: an agent's client gets the terminal, and the agent's turn is held meanwhile."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import until
from consoles import PtyConsole

from agentsdir.adapters import processes
from agentsdir.formats.store import locks

# Says how it was started, and does what is typed.
CLIENT = """
import json, os, signal, sys, termios, tty
said = {"argv": sys.argv[1:], "cwd": os.getcwd(), "pid": os.getpid(), "turn":
        [name for name in os.environ if name.startswith("AGENTSDIR_TURN")]}
with open(os.environ["SAID"], "w") as file:
    json.dump(said, file)
signal.signal(signal.SIGINT, lambda *_: print("client heard Ctrl-C", flush=True))
print("client ready", flush=True)
while True:
    word, _, rest = input().partition(" ")
    if word == "leave":
        sys.exit(int(rest))
    elif word == "raw":
        tty.setraw(0)
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        print("client goes on", flush=True)
"""


class OpenedAgent:
    """A shell at a terminal in which an agent of Claude Code is opened."""

    def __init__(self, shell: Any, console: PtyConsole) -> None:
        self._shell = shell
        self.console = console

    def type(self, line: str) -> None:
        """Type a line."""
        self.console.type(line)

    def see(self, pattern: str) -> None:
        """Wait until something was shown."""
        until(lambda: re.search(pattern, self.console.shown), f"{pattern}\n{self.console.shown}")

    @property
    def said(self) -> dict[str, Any]:
        """How the client was started."""
        found: dict[str, Any] = orjson.loads((self._shell.home / "said").read_bytes())
        return found


@pytest.fixture
def agent(shell: Any) -> str:
    """Return an agent of Claude Code, for which a program of ours stands."""
    program = shell.home / "client.py"
    program.write_text(CLIENT)
    config = shell.home / ".config" / "agentsdir" / "config.toml"
    config.parent.mkdir(parents=True)
    command = orjson.dumps([sys.executable, str(program)]).decode()
    said = orjson.dumps(str(shell.home / "said")).decode()
    lines = ["[providers.claude]", f"command = {command}", 'model = "m"']
    config.write_text("\n".join([*lines, "[providers.claude.env]", f"SAID = {said}", ""]))
    config.chmod(0o600)
    options = ("-o", "max-turns=3", "-o", "append-system-prompt=-x y")
    made: str = shell.new("--provider", "claude", "--name", "fixer", *options)
    return made


@pytest.fixture
def terminal(shell: Any, agent: str) -> Any:
    """Return a terminal."""
    variables = {**shell.environment(), "PS1": "> ", "TERM": "xterm"}
    program = f"{shlex.quote(sys.executable)} -m agentsdir.cli.main"
    with PtyConsole(variables, shell.cwd) as console:
        console.type(f'agentsdir() {{ {program} "$@"; }}')
        yield OpenedAgent(shell, console)


def opened(terminal: OpenedAgent) -> None:
    """Open the client, and wait until it runs."""
    terminal.type("agentsdir open fixer; echo ended $?")
    terminal.see("client ready")


def test_the_client_gets_the_session_the_folder_and_the_terminal(
    shell: Any, agent: str, terminal: OpenedAgent
) -> None:
    """With the agent's own options, one word each; without those of a client that prints."""
    opened(terminal)
    native = shell.ok("inspect", agent, "--json").json["native"]["id"]
    said = terminal.said
    assert said["argv"] == ["--model=m", "--append-system-prompt=-x y", f"--session-id={native}"]
    assert (said["cwd"], said["turn"]) == (str(shell.cwd), [])
    assert f"--session-id={native} in {shell.cwd}" in terminal.console.shown.replace("\n", "")

    assert locks.is_held(shell.folder(agent) / ".turn")
    done = shell("send", "--wait", "0", agent, "hi")
    assert done.code == 11
    assert "fixer is open in its client (`agentsdir open`)" in done.err
    with shell.start("send", agent, "hello") as sender:
        said = sender.stdout.readline().decode()
        sender.kill()
    assert said.startswith("agentsdir: waiting: ")
    assert "fixer is open in its client" in said
    assert "`send --no-wait` queues" in said
    assert shell.ok("list", "--json").rows[0]["state"] == "active"

    terminal.type("leave 0")
    terminal.see("ended 0")
    assert "prompts from the client" not in terminal.console.shown
    assert not locks.is_held(shell.folder(agent) / ".turn")


def test_ctrl_c_is_the_clients(terminal: OpenedAgent) -> None:
    """The command waits for the client, which decides what it means."""
    opened(terminal)
    terminal.type("\x03")
    terminal.see("client heard Ctrl-C")
    terminal.type("leave 0")
    terminal.see("ended 0")


def test_a_client_that_fails_is_named_with_its_code(terminal: OpenedAgent) -> None:
    """Exit 14."""
    opened(terminal)
    terminal.type("leave 7")
    terminal.see("the client ended with 7")
    terminal.see("ended 14")


def test_a_client_that_is_killed_leaves_the_terminal_as_it_was(terminal: OpenedAgent) -> None:
    """It had taken the echo away."""
    terminal.type("agentsdir open fixer; stty -a; echo ended")
    terminal.see("client ready")
    terminal.type("raw")
    terminal.see("was ended by signal 9")
    terminal.see(r"(?s)[^-]icanon .*[^-]echo .*ended")


def test_a_client_that_stops_gives_the_shell_back(
    shell: Any, agent: str, terminal: OpenedAgent
) -> None:
    """The whole job stops, and `fg` goes on with it; the turn is held all the time."""
    opened(terminal)
    terminal.type("stop")
    terminal.see("Stopped")
    assert locks.is_held(shell.folder(agent) / ".turn")
    terminal.type("fg")
    terminal.see("client goes on")
    terminal.type("leave 0")
    until(lambda: not locks.is_held(shell.folder(agent) / ".turn"), "the client has ended")
    terminal.type("echo left $?")
    terminal.see("left 0")


def test_when_the_command_is_ended_so_is_the_client(
    shell: Any, agent: str, terminal: OpenedAgent
) -> None:
    """Exit 143; nothing runs on, and the turn is free."""
    opened(terminal)
    client = processes.find(terminal.said["pid"])
    assert client is not None
    stat = Path(f"/proc/{client.pid}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGTERM)
    terminal.see("ended 143")
    assert not processes.is_alive(client)
    assert not locks.is_held(shell.folder(agent) / ".turn")


def test_without_a_terminal_nothing_is_started(shell: Any, agent: str) -> None:
    """Exit 2; a terminal on one side is not enough."""
    for given in ({}, {"tty": True}, {"stdin_tty": True}):
        done = shell("open", agent, "--json", **given)
        assert (done.code, done.error["kind"]) == (2, "no-terminal")
    assert not (shell.home / "said").exists()


@pytest.mark.parametrize("provider", ["echo", "script"])
def test_a_provider_that_runs_no_program_is_not_opened(shell: Any, provider: str) -> None:
    """Exit 2, with what shows the conversation."""
    agent = shell.new("--provider", provider, *(["-o", "file=x"] if provider == "script" else []))
    done = shell("open", agent, "--json", tty=True, stdin_tty=True)
    assert (done.code, done.error["kind"]) == (2, "no-program")
    assert "agentsdir log" in done.error["hint"]


def test_within_a_turn_no_client_is_opened(shell: Any, agent: str) -> None:
    """Exit 13, whatever agent is named, and with a terminal."""
    root = str(shell.root.resolve())
    shell.variables = {"AGENTSDIR_ROOT": root, "AGENTSDIR_AGENT": agent, "AGENTSDIR_TURN": "t" * 24}
    done = shell("open", agent, "--json", tty=True, stdin_tty=True)
    assert (done.code, done.error["kind"]) == (13, "in-turn")


def test_a_closed_agent_is_not_opened(shell: Any, agent: str) -> None:
    """Exit 13."""
    shell.ok("close", agent)
    assert shell("open", agent, tty=True, stdin_tty=True).code == 13


@pytest.mark.parametrize(
    "native", ["--dangerously-skip-permissions", "-x", "../../x", "latest", "a" * 36, "", "\x1b[2J"]
)
def test_an_id_that_is_no_uuid_starts_nothing(shell: Any, agent: str, native: str) -> None:
    """A log from elsewhere may say anything. Exit 14, `bad-native-id`, or it counts as damage."""
    log = shell.folder(agent) / "events.jsonl"
    own = shell.ok("inspect", agent, "--json").json["native"]["id"]
    data = log.read_bytes()
    log.write_bytes(data.replace(own.encode(), orjson.dumps(native)[1:-1]))
    for name in ("state.json", "session.json"):
        (shell.folder(agent) / name).unlink(missing_ok=True)

    done = shell("open", agent, "--json", tty=True, stdin_tty=True)

    assert done.code in (12, 14)
    assert not (shell.home / "said").exists()


def test_what_no_program_can_be_given_is_an_error(
    shell: Any, agent: str, terminal: OpenedAgent
) -> None:
    """A NUL in a log from elsewhere: one line and exit 14, at the terminal and in a turn."""
    log = shell.folder(agent) / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"-x y"', b'"a\\u0000b"'))
    for name in ("state.json", "session.json"):
        (shell.folder(agent) / name).unlink(missing_ok=True)
    terminal.type("agentsdir open fixer; echo ended $?")
    terminal.see("ended 14")
    shown = " ".join(terminal.console.shown.split())
    assert "embedded null byte" in shown
    assert "Traceback" not in shown
    done = shell("send", agent, "hi", "--json")
    assert (done.code, done.error["kind"]) == (14, "no-client")
    assert "embedded null byte" in done.error["message"]


def test_the_command_is_shown_as_words_and_not_whole_where_it_is_long(
    shell: Any, agent: str, terminal: OpenedAgent
) -> None:
    """What one word is looks like one word."""
    shell.ok("set", agent, f"model=m --x {'y' * 5000} END")
    opened(terminal)
    terminal.type("leave 0")
    terminal.see("ended 0")
    shown = "".join(terminal.console.shown.split("\n"))
    assert "'--model=m --x yyy" in shown
    assert f"… in {shell.cwd}" in shown
    assert "END" not in shown


def test_an_untrusted_root_opens_nothing(shell: Any, agent: str) -> None:
    """As for `send`: exit 14, `untrusted-root`."""
    (shell.root).rename(shell.cwd / ".agentsdir")
    shell.root = shell.cwd / ".agentsdir"
    shell.variables = {"AGENTSDIR_ROOT": ""}
    done = shell("open", agent, "--json", tty=True, stdin_tty=True)
    assert (done.code, done.error["kind"]) == (14, "untrusted-root")
    assert not (shell.home / "said").exists()


def test_a_folder_that_is_gone_opens_nothing(shell: Any, agent: str, terminal: OpenedAgent) -> None:
    """Exit 13, with the folder, and what names its new place."""
    other = shell.home / "other"
    other.mkdir()
    shell.ok("set", agent, "cwd=~/other")
    other.rmdir()
    terminal.type("agentsdir open fixer; echo ended $?")
    terminal.see("ended 13")
    shown = " ".join(terminal.console.shown.split())
    assert f"agentsdir: the working directory {other} is gone" in shown
    assert "--session-id" not in shown


def test_in_a_folder_that_is_gone_no_turn_begins(shell: Any, agent: str) -> None:
    """Exit 13, with what names its new place; nothing is queued, and no turn fails."""
    (shell.home / "old").mkdir()
    shell.ok("set", agent, "cwd=~/old")
    (shell.home / "old").rename(shell.home / "new")
    before = shell.log(agent)
    for words in (["send", "fixer", "hi"], ["send", "--no-message", "fixer"]):
        done = shell(*words, "--json")
        assert (done.code, done.error["kind"]) == (13, "no-folder")
        assert "`agentsdir set fixer cwd=.`" in done.error["hint"]
    assert shell.log(agent) == before

    shell.cwd = shell.home / "new"
    done = shell("send", "-c", "hi", "--json")
    assert done.code == 10
    assert str(shell.home / "old") in done.error["hint"]
    assert "`agentsdir set fixer cwd=.`" in done.error["hint"]
