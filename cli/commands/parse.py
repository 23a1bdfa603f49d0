"""`agentsdir parse`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, NamedTuple

import orjson
import typer

from agentsdir.cli import options
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import json_text, note, note_drifts, print_lines
from agentsdir.cli.progress import progress
from agentsdir.cli.sessions import find_session
from agentsdir.engine.parse import (
    FoundSession,
    find_sessions,
    parse_all,
    recognises,
    size_of,
    walk,
)
from agentsdir.engine.parse_report import ParseReport
from agentsdir.engine.workers import available_processors
from agentsdir.formats.errors import AgentsdirError, NotATranscript, UsageError
from agentsdir.formats.findings import Finding
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentsdir.cli.environment import Environment
    from agentsdir.formats.sink import View


class ParseOptions(NamedTuple):
    """The options of `parse`."""

    adapter: str = "auto"
    view: View = "live"
    hidden: bool = False
    report: str = ""
    jobs: int = 1


def parse(env: Environment, paths: Sequence[str], given: ParseOptions) -> int:
    """Print the blocks of transcripts, files, folders or native sessions; return the exit code.

    Raises `UsageError` for a path that does not exist, and `NotATranscript` if there is none.
    """
    summary = ParseReport(given.view)
    found, failed = _find(env, paths, given.adapter, summary)
    with progress(env, sum(map(size_of, found)) if len(found) > 1 else 0) as advance:

        def note_done(session: FoundSession) -> None:
            advance(size_of(session))

        lines = parse_all(found, summary, hidden=given.hidden, jobs=given.jobs, note_done=note_done)
        with closing(lines):
            print_lines(env, lines)
    env.stdout.flush()
    if given.adapter != "auto" and not (summary.has_blocks or summary.damaged):
        _check_adapter(found, given.adapter)
    _finish(env, given.report, summary)
    return Exit.PARTIAL if failed or summary.damaged else Exit.OK


def _find(
    env: Environment, operands: Sequence[str], adapter: str, summary: ParseReport
) -> tuple[list[FoundSession], bool]:
    """Find the sessions of every operand; one bad file among several does not stop the others."""
    rejected: list[NotATranscript] = []

    def remark(error: NotATranscript) -> None:
        kind = error.kind if error.kind in ("empty-file", "unreadable") else "skipped-file"
        summary.add_finding(Finding(kind, error.file, error.message))

    files: list[Source] = []
    found: list[FoundSession] = []
    for operand in operands:
        if not operand:
            raise UsageError("a file's name is empty", hint="a dot names the working directory")
        path = env.cwd / operand
        try:
            if operand == "-":
                files.append(Source.from_stream("-", env.stdin))
            elif path.is_dir():
                found += find_sessions(walk(path, operand, remark), adapter, remark)
            elif path.is_file():
                files.append(Source(operand, path=path))
            elif path.is_fifo():
                with path.open("rb") as stream:
                    files.append(Source.from_stream(operand, stream))
            elif path.exists():
                raise UsageError(f"{operand} is no file, folder or pipe")
            else:
                found.append(find_session(env, operand))
        except OSError as refused:
            message = f"cannot read {refused.filename or operand}: {refused.strerror}"
            rejected.append(NotATranscript(message, file=operand, kind="unreadable"))
    forced = adapter != "auto"
    found = find_sessions(files, adapter, rejected.append, forced=forced) + found
    if not found:
        raise rejected[0] if rejected else NotATranscript(f"no transcripts in {operands[0]}")
    for error in rejected:
        note(env, error.message)
    return found, bool(rejected)


def _check_adapter(found: list[FoundSession], adapter: str) -> None:
    """Raise `NotATranscript` if `--adapter` names one that does not recognise the files."""
    for one in found:
        source = one.files.transcripts[0].source
        if not recognises(adapter, source):
            message = f"{source.name} holds nothing that the adapter {adapter!r} can read"
            raise NotATranscript(
                message, file=source.name, hint="without --adapter, the content decides"
            )


def _finish(env: Environment, path: str, summary: ParseReport) -> None:
    """Write the report to `path`, or without one name damage on stderr."""
    if path == "-":
        env.stderr.write(json_text(summary.as_json(), env.stderr, orjson.OPT_INDENT_2) + "\n")
        return
    if path:
        text = json_text(summary.as_json(), None, orjson.OPT_INDENT_2) + "\n"
        try:
            (env.cwd / path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise AgentsdirError(f"cannot write the report {path}: {error.strerror}") from error
    for finding in summary.findings:
        if finding.is_damage:
            note(env, str(finding))
    note_drifts(env, summary.drifts)


def run(
    ctx: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR|ID|AGENT|-...",
            help="Transcripts, folders, ids of clients' sessions, agents, or - for stdin",
        ),
    ],
    adapter: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The adapter that reads the files; auto: chosen by their content"
        ),
    ] = "auto",
    view: Annotated[
        str,
        typer.Option(
            metavar="VIEW",
            help="live: what the client would go on with; all: everything that was written",
        ),
    ] = "live",
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Print the client's bookkeeping rows, too")
    ] = False,
    report: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Write a report of what was read and found to this file, as JSON; - is stderr",
            show_default="damage is named on stderr",
        ),
    ] = "",
    jobs: options.Jobs = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print errors as JSON; blocks always are JSON")
    ] = False,
) -> int:
    """Turn transcripts of Claude Code and Gemini CLI into blocks, one JSON object a line.

    \b
    Examples:
      agentsdir parse ~/.claude/projects/*/*.jsonl | jq 'select(.type=="tool_use").toolName'
      agentsdir parse 5f0c1a7b > blocks.jsonl
      agentsdir parse --report - ~/.gemini/tmp/my-project > blocks.jsonl
      zcat old.jsonl.gz | agentsdir parse -

    A FILE is read alone. A DIR is searched, and subagents are joined to their sessions. An ID, or
    its first 8 characters (or more), is a session in a client's own store, with its subagents. An
    AGENT is the session that it goes on with. Damaged input is read as far as possible and named on
    stderr (exit 3).
    """
    del as_json
    if view not in ("live", "all"):
        raise UsageError(f"there is no view {view!r}", hint="live or all")
    chosen: View = "all" if view == "all" else "live"
    return parse(
        ctx.obj,
        paths,
        ParseOptions(adapter, chosen, hidden, report, jobs or available_processors()),
    )
