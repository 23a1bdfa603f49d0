"""Models that a test holds and lets go on: shared by the tests of the library."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from looping import model

from agentsdir import AgentConfig
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.store.layout import AgentPaths

LONG = 60.0
"""Seconds after which what was waited for is called missing."""
GATED = AgentConfig(provider="gated")
ECHO = AgentConfig(provider="echo")


class Gate:
    """A model that answers with the prompt, once `go` was called; `prompts` are those it has got.

    A prompt is a text here.

    A turn that is to end does not wait for `go`.
    """

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self._open = threading.Event()
        self._asked = threading.Condition()

    def __call__(self, request: Any) -> str:
        """Answer a model call."""
        text = request.content
        with self._asked:
            self.prompts.append(text)
            self._asked.notify_all()
        while not self._open.wait(0.01) and not request.is_cancelled():
            pass
        return text

    def go(self) -> None:
        """Let the turns that wait, and all later ones, go on."""
        self._open.set()

    def wait_for(self, prompt: str) -> None:
        """Wait until the model has got a prompt."""
        with self._asked:
            assert self._asked.wait_for(lambda: prompt in self.prompts, LONG), prompt


@contextmanager
def gated() -> Iterator[Gate]:
    """Have a provider `gated` whose model is a `Gate`; at the end all its turns go on."""
    gate = Gate()
    with model(gate, "gated"):
        try:
            yield gate
        finally:
            gate.go()


def wait_for(ready: Callable[[], Any]) -> Any:
    """Poll until something is so."""
    end = time.monotonic() + LONG
    while not (found := ready()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)
    return found


def logged(paths: AgentPaths) -> list[dict[str, Any]]:
    """Return the records of an agent's log."""
    return [orjson.loads(line) for line in paths.log.read_bytes().splitlines()]


def endings(paths: AgentPaths) -> list[str]:
    """Return how the turns of an agent ended, in order."""
    names = {"turn.complete": "complete", "turn.aborted": "aborted", "turn.error": "error"}
    return [names[one["event"]] for one in logged(paths) if one["event"] in names]


def outcomes(paths: AgentPaths) -> list[str]:
    """Return what became of an agent's messages, in order."""
    return [one["data"]["outcome"] for one in logged(paths) if one["event"] == "message.delivered"]


def kind_of(execution: Any) -> str:
    """Return the kind of the error that an execution has for a result."""
    with pytest.raises(AgentsdirError) as raised:
        execution.wait(LONG)
    return raised.value.kind
