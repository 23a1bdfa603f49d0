"""One session of Gemini CLI, read into a sink: the main thread, then its subagents'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.adapters.gemini.transcripts.detection import (
    CHECKPOINT,
    PROMPTS,
    QWEN,
    REPORT,
    STREAM,
    family_of,
)
from agentsdir.adapters.gemini.transcripts.reading import ReadThread
from agentsdir.adapters.gemini.transcripts.threads import link_children, tell_copies_apart
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.usage import usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.adapters.contract import SessionFiles, Transcript
    from agentsdir.adapters.gemini.transcripts.threads import Thread
    from agentsdir.formats.reading.sink import ParseSink


def read_session(session: SessionFiles, sink: ParseSink) -> None:
    """Read a session into `sink`: the main thread, then its subagents' in the order given."""
    for remark in session.remarks:
        sink.finding(remark)
    first = session.transcripts[0]
    family = family_of(first.source.head())
    alone = _reader_of(family)
    if alone is not None:
        sink.open_main()
        alone(first, sink)
        return
    threads = [ReadThread(transcript, sink) for transcript in session.transcripts]
    main = None if threads[0].child else threads[0]
    children = list(threads) if main is None else threads[1:]
    copies = tell_copies_apart(children)
    firsts = [one for one in children if all(one is not copy for copy, _ in copies)]
    linked = {} if main is None else link_children(main, firsts)
    for copy, fullest in copies:
        copy.link, copy.name = fullest.link, fullest.name
        if not copy.is_told:
            copy.pass_over()
            children.remove(copy)
            threads.remove(copy)
    if main is not None:
        sink.open_main()
    for child in children:
        parent = None if main is None else MAIN
        sink.conversation(child.conversation, parent=parent, link=child.link)
        if child.link.method == "none":
            message = "no call that started this thread is known"
            sink.finding(Finding("orphan-subagent", child.file, None, None, None, message))
    for thread in threads:
        thread.write(sink, linked if thread is main else {})
    for thread in threads:
        _count_missing(thread, sink)


def _count_missing(thread: Thread, sink: ParseSink) -> None:
    """Say that the tokens are a lower bound where a subagent's file is not there."""
    for message in thread.fold.index.messages.values():
        for call in message.calls.values():
            child = call.spawn.agent_id if call.spawn is not None else None
            if child is not None and child not in sink.conversations:
                sink.use(thread.conversation, usage(0, 0, exact=False))
                return


def _reader_of(family: str | None) -> Callable[[Transcript, ParseSink], None] | None:
    """Return the reader of what has one thread and nothing to fold; a session needs none of it."""
    if family in (STREAM, REPORT):
        from agentsdir.adapters.gemini.transcripts.stdout import read_report, read_stream

        return read_stream if family == STREAM else read_report
    if family == PROMPTS:
        from agentsdir.adapters.gemini.transcripts.prompt_log import read_prompt_log

        return read_prompt_log
    if family == CHECKPOINT:
        from agentsdir.adapters.gemini.transcripts.checkpoints import read_checkpoint

        return read_checkpoint
    if family == QWEN:
        from agentsdir.adapters.gemini.transcripts.qwen import read_qwen

        return read_qwen
    return None
