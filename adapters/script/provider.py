"""The provider behind `script`: the n-th prompt gets the n-th turn of the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.recorded import RecordedTranscript, forked_transcript, saved_transcript
from agentsdir.adapters.script.play import load_play
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.reading.blocks import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentsdir.adapters.contract import Content, NativeFile, SessionSpec
    from agentsdir.adapters.script.play import Play
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.source import Source
    from agentsdir.formats.reading.stream import StreamEvent


class ScriptProvider:
    """Opens sessions that play the file named by ``--option file=PATH``."""

    option_names: tuple[str, ...] = ("file",)
    path_options: tuple[str, ...] = ("file",)
    default_model = "script"
    runs_program = False

    def create(self, spec: SessionSpec) -> ScriptSession:
        """Open a new session. Raises `ProviderError` for a missing or unusable script."""
        return self.restore(spec, b"")

    def restore(self, spec: SessionSpec, state: bytes) -> ScriptSession:
        """Reopen one; the transcript says which turn comes next."""
        del state
        if "file" not in spec.options:
            raise ProviderError("the script provider needs --option file=PATH", kind="bad-script")
        play = load_play(Path(spec.cwd) / spec.options["file"])
        return ScriptSession(spec, play, saved_transcript(spec))

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        """Take the recorded events over as they are."""
        del report
        return forked_transcript(transcripts, old_id, new_id)


class ScriptSession:
    """One session that plays its script."""

    def __init__(self, spec: SessionSpec, play: Play, saved: bytes) -> None:
        self._spec = spec
        self._play = play
        self._transcript = RecordedTranscript(spec, saved)

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Play the next turn. Raises `ProviderError` where the script says so, or is over."""
        spec, transcript = self._spec, self._transcript
        yield transcript.prompt(content, spec.now())
        for line in self._play.turn(transcript.prompts):
            if line["type"] == "sleep":
                spec.sleep(float(line.get("seconds", 0)))
            elif line["type"] == "error":
                raise ProviderError(
                    str(line.get("message") or "the script fails here"),
                    kind=str(line.get("kind") or "provider-failed"),
                )
            else:
                yield transcript.record(self._as_own(line))

    def _as_own(self, line: StreamEvent) -> StreamEvent:
        """Return a scripted event as one of this session and turn: its ids, its clock."""
        prefix = self._transcript.prefix
        event: dict[str, Any] = {**line, "conversationId": line.get("conversationId", MAIN)}
        event.pop("timestamp", None)
        if "blockId" in event:
            event["blockId"] = prefix + event["blockId"]
        if "block" in event:
            event["block"] = {
                **event["block"],
                "id": prefix + event["block"]["id"],
                "conversationId": event["conversationId"],
                "sessionId": self._transcript.native_id,
                "timestamp": self._spec.now(),
                "source": None,
            }
        return event

    def interrupt(self) -> Iterator[StreamEvent]:
        """Nothing runs that could be asked to end."""
        return iter(())

    def suspend(self) -> bytes:
        """Return the number of turns played, for whoever looks at the blob."""
        return b'{"turns":%d}' % self._transcript.prompts

    def stop(self) -> None:
        """Nothing runs between turns."""

    def transcripts(self) -> list[NativeFile]:
        """Return the events played so far."""
        return self._transcript.files()
