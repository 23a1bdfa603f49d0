"""A bot with two users: each has a session, and none waits for the answer of another.

printf 'ada: good morning\nbob: hello\nada: and goodbye\n' | python examples/bot.py
"""

import sys
from concurrent.futures import Future
from functools import partial

from agentsdir import AgentConfig, App, TurnResult

BOT = AgentConfig(system="You are a friendly bot. Answer in one sentence.")


def reply(user: str, turn: Future[TurnResult]) -> None:
    """Answer a user, when the turn has ended."""
    error = turn.exception()
    print(f"@{user}", turn.result().response if error is None else f"sorry: {error}", flush=True)


def main() -> None:
    """Read messages of users from standard input, a line each."""
    with App(BOT, max_active=100) as app:  # its end waits for the answers
        for line in sys.stdin:
            user, _, text = line.strip().partition(": ")
            # The prefix keeps a user's name from being the name of some other agent.
            execution = app.session(f"bot-{user}").send(text)
            execution.future.add_done_callback(partial(reply, user))


if __name__ == "__main__":
    main()
