"""Tests of the prompt, driven in a real terminal (tmux) as a person does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chat_terminal import ChatTerminal


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Callable[..., ChatTerminal]]:
    """Return what starts a prompt in a terminal; all are ended with the test."""
    opened: list[ChatTerminal] = []

    def start(*words: str, columns: int = 100, rows: int = 30, **variables: str) -> ChatTerminal:
        terminal = ChatTerminal(tmp_path, columns, rows, variables)
        opened.append(terminal)
        terminal.start(*words)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()
