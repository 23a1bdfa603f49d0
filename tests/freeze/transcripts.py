"""What `parse` makes of every transcript of a folder, as hashes: a line for each file."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import program
import scene

FIXTURES = scene.FIXTURES
SHARED = FIXTURES.parents[1] / "shared"
"""Recordings of the real clients; they are not in the repository."""

FOLDERS = {
    "fixtures": FIXTURES,
    "corpus": SHARED / "corpus",
    "interactive": SHARED / "interactive",
}
"""Where transcripts are, by the name of the file that holds their hashes."""
RECORDED = Path(__file__).with_name("hashes")

_FIRST = ("claude", "gemini", "golden/claude-stream", "interactive", "script")
"""What the paths of transcripts begin with; other fixtures are roots and logs of agents."""


def recorded(name: str) -> Path:
    """Return the file that holds the hashes of a folder."""
    return RECORDED / f"{name}.txt"


def text_of(folder: Path) -> str:
    """Return the hashes of a folder as they are recorded."""
    return "".join(f"{line}\n" for line in lines_of(folder))


def lines_of(folder: Path) -> Iterator[str]:
    """Yield for each transcript its path, exit code and three hashes.

    They are of the blocks, of what is said on stderr with ``--report -``, and of the blocks with
    ``--hidden``. Files that are refused are hashed, too: it is behaviour that they are. The folders
    of the second level, of one session or one recording, are read as a whole besides.
    """
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not str(name).startswith(_FIRST):
            continue
        if path.is_dir():
            if len(name.parts) == 2:
                yield _line(folder, f"{name}/", path)
        elif _is_transcript(path.name.removesuffix(".gz")):
            yield _line(folder, str(name), path)


def _is_transcript(name: str) -> bool:
    beside = (".blocks.jsonl", ".all.jsonl", ".cmd.json", "keys.jsonl", "projects.json")
    return name.endswith((".jsonl", ".json", ".stdout")) and not name.endswith(beside)


def _line(folder: Path, name: str, path: Path) -> str:
    packed = path.suffix == ".gz"
    operand, data = ("-", gzip.decompress(path.read_bytes())) if packed else (name, None)
    said, hidden = (
        program.command(
            ["parse", *options, operand],
            0,
            cwd=folder,
            home=Path("/nonexistent"),
            variables={"AGENTSDIR_ROOT": "/nonexistent/root"},
            stdin=data,
        )
        for options in (["--report", "-"], ["--hidden"])
    )
    hashes = [scene.hash_of(data)[:12] for data in (said.out, said.err, hidden.out)]
    return f"{said.code} {' '.join(hashes)} {_short(name)}"


def _short(name: str) -> str:
    """Return a path without the folders in which a client keeps a session."""
    parts = name.split("/")
    return name if len(parts) <= 4 else "/".join([*parts[:2], "…", parts[-1]])
