"""Two adapters that only these tests have; installed by `house.House`, as any third party's are.

`counted` plays a script, and counts the turns that are at work at the same time, in any process.
`actor` does the same as a program of the user's would: what a script's tool calls say is run in a
shell, with the marks of the turn, and its transcript stands in a store at home.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentsdir.adapters.protocol import (
    Architecture,
    Content,
    NativeFile,
    Profile,
    ProviderSession,
    SessionSpec,
)
from agentsdir.adapters.recorded import RecordedProvider, RecordedReader, saved_transcript
from agentsdir.adapters.script import Script, ScriptSession, load_script
from agentsdir.formats import blocks
from agentsdir.formats.source import Source

COUNTS = "AGENTSDIR_TEST_COUNTS"
"""The variable that names the folder in which turns are counted; nothing is counted without it."""


class Seat:
    """One turn's place among those at work: a file that is locked while the turn lives.

    `tally` gets a line with how many there are, this one included, whenever one sits down.
    """

    def __init__(self, folder: str, name: str) -> None:
        self._path = Path(folder) / f"{name}.seat"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with (Path(folder) / "tally").open("a") as tally:
            fcntl.flock(tally, fcntl.LOCK_EX)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            tally.write(f"{1 + sum(map(self._is_taken, Path(folder).glob('*.seat')))}\n")

    def _is_taken(self, path: Path) -> bool:
        """Tell whether another turn has that seat; a dead one's seat is taken away."""
        if path == self._path:
            return False
        try:
            with path.open() as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def leave(self) -> None:
        """Get up."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


class Session:
    """A `ScriptSession` that sits on a seat while it plays."""

    def __init__(self, spec: SessionSpec, saved: Source | None) -> None:
        file = spec.options.get("file")
        script = (
            load_script(Path(spec.cwd) / file) if file else Script([[]], repeats=True, name="empty")
        )
        self.spec = spec
        self.inner = ScriptSession(spec, script, saved)
        folder = os.environ.get(COUNTS)
        self._seat = Seat(folder, f"{spec.native_id}-{spec.turn}") if folder else None

    def send(self, content: Content) -> Iterator[Any]:
        """Play the next turn."""
        yield from self.inner.send(content)

    def interrupt(self) -> Iterator[Any]:
        """End at once."""
        return iter(())

    def suspend(self) -> bytes:
        """Leave nothing: the transcript is all there is."""
        return b""

    def stop(self) -> None:
        """Get up."""
        if self._seat:
            self._seat.leave()

    def transcripts(self) -> list[NativeFile]:
        """Return the events played so far."""
        return list(self.inner.transcripts())


class Counted(RecordedProvider):
    """The provider behind `counted`."""

    option_names: tuple[str, ...] = ("file",)
    default_model = "counted-1"

    def create(self, spec: SessionSpec) -> ProviderSession:
        """Open a new session."""
        return self.restore(spec, b"")

    def restore(self, spec: SessionSpec, state: bytes) -> ProviderSession:
        """Reopen one."""
        del state
        return Session(spec, saved_transcript(spec))


class Acting(Session):
    """A session whose tool calls are commands that it runs."""

    def __init__(self, spec: SessionSpec) -> None:
        self._main = _main(spec)
        saved = self._main.read_bytes() if self._main.exists() else b""
        super().__init__(spec, Source(self._main.name, data=saved))

    def send(self, content: Content) -> Iterator[Any]:
        """Play the next turn, and do what its calls say; the store has each event at once."""
        for event in self.inner.send(content):
            self._write()
            yield event
            block = event.get("block", {})
            if event["type"] == "block_complete" and block["type"] == "tool_use":
                done = self._do(block)
                yield done
                self._write()

    def _do(self, call: dict[str, Any]) -> Any:
        environment = {**os.environ, **self.spec.host.environment, **self.spec.host.marks}
        done = shell(call["input"]["command"], environment)
        transcript = self.inner._transcript
        part = call["id"].removeprefix(transcript.prefix) + ":result"
        said = f"{done.returncode}\n{done.stdout}{done.stderr}"
        block = transcript.block(
            "tool_result", part, self.spec.now(), toolUseId=call["toolUseId"], output=said,
            isError=done.returncode != 0,
        )  # fmt: skip
        return transcript.record(blocks.block_complete(block["id"], block))

    def _write(self) -> None:
        self._main.parent.mkdir(parents=True, exist_ok=True)
        self._main.write_bytes(self.inner.transcripts()[0].source.read())

    def transcripts(self) -> list[NativeFile]:
        """Return what stands in the store."""
        return _stored(self.spec)


def shell(command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command line."""
    return subprocess.run(
        ["bash", "-c", command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _main(spec: SessionSpec) -> Path:
    return spec.host.home / "store" / f"{spec.native_id}.jsonl"


def _stored(spec: SessionSpec) -> list[NativeFile]:
    main = _main(spec)
    return [NativeFile(main.name, "main", Source(str(main), path=main))] if main.exists() else []


class Actor(Counted):
    """The provider behind `actor`."""

    default_model = ""
    runs_program = True

    def restore(self, spec: SessionSpec, state: bytes) -> ProviderSession:
        """Open a session; the store has what there is of it."""
        del state
        return Acting(spec)

    def native_files(self, spec: SessionSpec) -> list[NativeFile]:
        """Return the store's one file of the session."""
        return _stored(spec)

    def materialize(self, spec: SessionSpec) -> list[Path]:
        """Put the saved transcript into the store, if it is not there."""
        main, saved = _main(spec), spec.transcripts.get(_main(spec).name)
        if saved is None or main.exists():
            return []
        main.parent.mkdir(parents=True, exist_ok=True)
        main.write_bytes(saved.read())
        return [main]

    def is_continuation(self, saved: Source, present: Source, *, ours: bool) -> bool:
        """Tell that it is: no program but these tests writes there."""
        del saved, present, ours
        return True

    def workspace_files(self, profile: Profile) -> Mapping[str, bytes]:
        """It knows no profiles."""
        del profile
        return {}


class Reader(RecordedReader):
    """Reads these transcripts when it is named; files that are not are left to `script`."""

    def detect(self, head: bytes, name: str) -> bool:
        """Claim nothing."""
        del head, name
        return False


COUNTED = Architecture("counted", "counted-cli", "counts its turns", Reader(), Counted())
ACTOR = Architecture("actor", "actor-cli", "runs its calls", Reader(), Actor())
