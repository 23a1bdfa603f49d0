"""What `open` is held to: a person at a terminal goes on with an agent in its client."""

from __future__ import annotations

import re
import shlex
import sys
import time
from typing import Any

import orjson
from commands import until
from consoles import TmuxConsole
from desk import Desk

PROGRAM = f"{shlex.quote(sys.executable)} -m agentsdir.cli.main"


def prepared_for_a_person(desk: Desk[Any]) -> None:
    """Answer beforehand what a client asks of one who opens it for the first time."""
    projects = {
        str(desk.work.resolve()): {
            "hasTrustDialogAccepted": True,
            "hasCompletedProjectOnboarding": True,
            "projectOnboardingSeenCount": 9,
        }
    }
    told = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "numStartups": 9,
        "autoUpdates": False,
        "bypassPermissionsModeAccepted": True,
        "officialMarketplaceAutoInstallAttempted": True,
        "officialMarketplaceAutoInstalled": False,
        "customApiKeyResponses": {"approved": ["dummy"], "rejected": []},
        "projects": projects,
    }
    if desk.provider == "gemini":
        trusted = {str(desk.work.resolve()): "TRUST_FOLDER"}
        (desk.store / "trustedFolders.json").write_bytes(orjson.dumps(trusted))
    else:
        (desk.home / ".claude.json").write_bytes(orjson.dumps(told))
        desk.store.mkdir(exist_ok=True)
        settings = {"skipDangerousModePermissionPrompt": True, "spinnerTipsEnabled": False}
        (desk.store / "settings.json").write_bytes(orjson.dumps(settings))


class Sitting:
    """A person at a terminal with an agent's client open."""

    def __init__(self, desk: Desk[Any], console: TmuxConsole, agent: str) -> None:
        self._desk = desk
        self._console = console
        self.agent = agent

    def open(self, ready: str) -> None:
        """Type `agentsdir open`, and wait until the client can be typed to."""
        self._console.type(f"{PROGRAM} open {self.agent}; echo ended $?")
        self.see(ready)

    def see(self, pattern: str) -> None:
        """Wait until something is on the screen."""
        until(lambda: re.search(pattern, self._console.shown), f"{pattern}\n{self._console.shown}")

    def say(self, text: str, answer: str) -> None:
        """Type a prompt, and wait for its answer."""
        self._type(text)
        self.see(answer)

    def _type(self, text: str) -> None:
        # A client that is not ready yet loses keys, and takes an Enter that comes with a text for
        # one that was pasted.
        before = self._console.shown.count(text[:20])
        while self._console.shown.count(text[:20]) == before:
            self._console.write(text)
            time.sleep(1)
        self._console.press("Enter")

    def leave(self, code: int = 0) -> None:
        """Leave the client, and wait for the shell."""
        self._type("/quit")
        # Letters of the client's menu may be left behind it on the line.
        self.see(rf"ended {code}(?!\d)")


def console_of(desk: Desk[Any]) -> TmuxConsole:
    """Return a terminal of the desk's user."""
    return TmuxConsole({**desk.environment, "TERM": "xterm-256color", "PS1": "> "}, desk.work)


def goes_on_in_the_client(desk: Desk[Any], ready: str) -> None:
    """What is said in the client is in the log when it is left, and the agent goes on with it."""
    prepared_for_a_person(desk)
    agent = desk.new()
    assert desk.send(agent, "hello").code == 0
    native = desk.native(agent)
    with console_of(desk) as console:
        sitting = Sitting(desk, console, agent)
        sitting.open(ready)
        assert desk("send", "--wait", "0", agent, "no").code == 11
        assert desk("inspect", agent, "--json").json["status"] == "running"
        sitting.say(desk.ask("again"), "This is the next turn")
        sitting.leave()
        assert "1 prompt from the client" in console.shown.replace("\n", " ")
    assert desk.native(agent) == native
    assert desk.said(agent)[-1] == "This is the next turn."
    assert "This is the next turn." in desk("log", agent, "-n", "1").out
    done = desk.send(agent, "hello", "--json")
    assert (done.code, done.json["response"]) == (0, "Good day."), done
    desk.sound(agent)


def begins_in_the_client(desk: Desk[Any], ready: str) -> None:
    """An agent without a turn is opened with a session of its own id."""
    prepared_for_a_person(desk)
    agent = desk.new()
    with console_of(desk) as console:
        sitting = Sitting(desk, console, agent)
        sitting.open(ready)
        sitting.say(desk.ask("hello"), "Good day")
        sitting.leave()
    assert desk.said(agent)[-1] == "Good day."
    assert desk.send(agent, "again").code == 0
    desk.sound(agent)
