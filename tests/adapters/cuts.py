"""Sessions that are cut at a row or changed, for readers that go on from their own state."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import orjson

from agentsdir.adapters.protocol import ReaderState, ResumableReader, SessionFiles, Transcript
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from pathlib import Path

MUTATIONS = 150
_STATE = """
import sys
from pathlib import Path
import orjson
from agentsdir.adapters import registry
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source
reader = registry.get(sys.argv[1]).reader
sources = [Source(name, path=Path(name)) for name in sys.argv[2:]]
(session,) = reader.discover(sources)
sys.stdout.buffer.write(orjson.dumps(reader.resume(session, ParseSink(), None).state))
"""


def cut(session: SessionFiles, size: int, known: Iterable[Transcript]) -> SessionFiles:
    """Return a session as it was when the main transcript had `size` bytes."""
    main = session.transcripts[0]
    begun = main._replace(source=Source(main.source.name, data=main.source.read()[:size]))
    return session._replace(transcripts=(begun, *known))


def ends(data: bytes) -> list[int]:
    """Return where the lines of a file end."""
    return [at + 1 for at, byte in enumerate(data) if byte == 10]


def as_another_has_it(state: ReaderState | None) -> ReaderState | None:
    """Return a state as another process reads it from a checkpoint."""
    return state and ReaderState(state.size, orjson.loads(orjson.dumps(state.state)))


def read_on(
    reader: ResumableReader, session: SessionFiles, state: ReaderState
) -> list[bytes] | None:
    """Return the blocks since `state`; None where the reader refuses to go on."""
    sink = ParseSink()
    try:
        reader.resume(session, sink, state)
    except ValueError:
        return None
    return list(sink.lines("all"))


def sessions_in(
    reader: ResumableReader, takes: Callable[[bytes], bool], *folders: Path
) -> list[SessionFiles]:
    """Return the sessions of the files in folders whose first bytes the function `takes`."""
    found = []
    for path in sorted(path for folder in folders for path in folder.rglob("*.jsonl")):
        with path.open("rb") as stream:
            if takes(stream.read(65536)):
                found.append(Source(str(path), path=path))
    return reader.discover(found)


def moved(rows: list[bytes], how: str, first: int, second: int) -> bool:
    """Double, swap or cut rows; return whether `how` is one of these."""
    if how == "double":
        rows.insert(second, rows[first])
    elif how == "swap":
        rows[first], rows[second] = rows[second], rows[first]
    elif how == "cut":
        rows[second] = rows[second][: len(rows[second]) // 2] + b"\n"
    else:
        return False
    return True


def readings_of_mutated(
    sessions: list[SessionFiles],
    mutated: Callable[[bytes, random.Random], bytes],
    hold: Callable[[SessionFiles, Iterable[int], random.Random], int],
    chosen: random.Random,
) -> int:
    """Return how many readings on `hold` has compared, in sessions that `mutated` changed."""
    read = 0
    for _ in range(MUTATIONS):
        session = chosen.choice(sessions)
        main = session.transcripts[0]
        data = main.source.read()
        if len(data) < 200_000:
            data = mutated(data, chosen)
            named = main._replace(source=Source(main.source.name, data=data))
            session = session._replace(transcripts=(named, *session.transcripts[1:]))
            places = ends(data)
            read += hold(session, chosen.sample(places, min(3, len(places))), chosen)
    return read


def states_in_processes(architecture: str, *files: Path) -> set[bytes]:
    """Return the different states of a reading's end, of two processes with other hashes."""
    return {
        subprocess.run(
            [sys.executable, "-c", _STATE, architecture, *map(str, files)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
