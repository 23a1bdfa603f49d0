"""The prompt at a terminal, `agentsdir chat` (docs/chat.md); here alone prompt-toolkit is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment


def talk(env: Environment, agent_id: str) -> int:
    """Talk at the terminal until the person leaves; return the exit code.

    Args:
        agent_id: of the agent to begin with; empty for the last one of this folder.

    Raises `Invalid` for a settings.toml that cannot be used.
    """
    import asyncio
    import signal

    from agentsdir.cli.chat.session import Chat
    from agentsdir.formats.store.settings import read_settings

    settings = read_settings(env.layout)

    async def converse() -> int:
        chat = Chat(env, agent_id, settings)
        ended_by = []

        def end(number: int) -> None:
            ended_by.append(number)
            chat.end()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has it ignored
                loop.add_signal_handler(number, end, number)
        await chat.run()
        return 128 + ended_by[0] if ended_by else 0

    return asyncio.run(converse())
