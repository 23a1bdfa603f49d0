"""Commands on several agents: what is refused to one does not stop the others."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentsdir.cli.exits import Exit, code_of
from agentsdir.cli.output import print_error
from agentsdir.formats.errors import AgentsdirError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.cli.environment import Environment


class Refusals:
    """Says each refusal when it happens; `code` is the first one's, and 0 without any."""

    def __init__(self, env: Environment, *, as_json: bool) -> None:
        self._env = env
        self._as_json = as_json
        self.code = Exit.OK

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Take note of an error of ours instead of raising it."""
        try:
            yield
        except AgentsdirError as error:
            print_error(self._env, error, as_json=self._as_json)
            self.code = self.code or code_of(error)
