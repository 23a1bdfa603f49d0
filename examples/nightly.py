"""A nightly batch: a child session reads each file, side by side, and one session sums it all up.

python examples/nightly.py reports/*.txt
"""

import sys
from pathlib import Path

from agentsdir import AgentConfig, AgentsdirError, App, element

EDITOR = AgentConfig(system="You write a summary of the night from the notes of your readers.")


def reader(name: str) -> AgentConfig:
    """Return the agent that reads one file."""
    return AgentConfig(system=f"You read the file {name}, and note in one line what went wrong.")


def main(files: list[Path]) -> int:
    """Print the summary; return 1 if a file could not be read by its child."""
    failures = 0
    with App(EDITOR) as app:
        editor = app.session("nightly")
        children = {}
        for file in files:
            agent = element(reader, name=file.name)
            children[file.name] = editor.spawn(agent, file.read_text(errors="replace"))
        notes = []
        for name, child in children.items():
            try:
                notes.append(f"{name}: {child.result.response}")
            except AgentsdirError as error:
                failures += 1
                notes.append(f"{name}: could not be read: {error}")
        print(editor.send("\n".join(notes)).result.response)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
