"""`agentsdir parse`."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import json_text, note, print_lines
from agentsdir.formats.errors import AgentsdirError, NotATranscript, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentsdir.engine.parsing import Found, ParseReport
    from agentsdir.formats.reading.sink import View


def run(
    ctx: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE|DIR|ID|-...", help="Transcripts, or native session ids"),
    ],
    adapter: Annotated[str, typer.Option(help="An adapter's name; auto goes by content")] = "auto",
    view: Annotated[
        str, typer.Option(help="live: what the client would go on with; all: everything written")
    ] = "live",
    hidden: Annotated[bool, typer.Option("--hidden", help="Print bookkeeping rows too")] = False,
    report: Annotated[
        str, typer.Option(metavar="PATH", help="Write what was read and found; - is stderr")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Errors as JSON; blocks are")] = False,
) -> int:
    """Turn transcripts of Claude Code and Gemini CLI into blocks, one JSON object a line.

    \b
    Examples:
      agentsdir parse ~/.claude/projects/*/*.jsonl | jq 'select(.type=="tool_use").toolName'
      agentsdir parse 5f0c1a7b > blocks.jsonl
      agentsdir parse --report - ~/.gemini/tmp/my-project > blocks.jsonl
      zcat old.jsonl.gz | agentsdir parse -

    A FILE is read by itself; a DIR is searched, and subagents are joined to their sessions. An ID,
    or its first 8 characters or more, is a session in a client's own store, with its subagents.
    Damaged input is read as far as it goes, named on stderr, and exits 3.
    """
    from agentsdir.engine.parsing import ParseReport, parse_all

    del as_json
    env: Environment = ctx.obj
    if view not in ("live", "all"):
        raise UsageError(f"there is no view {view!r}", hint="live or all")
    chosen: View = "all" if view == "all" else "live"
    summary = ParseReport(chosen)
    found, failed = _find(env, paths, adapter, summary)
    print_lines(env, parse_all(found, summary, hidden=hidden))
    env.stdout.flush()
    if adapter != "auto" and not (summary.has_blocks or summary.damaged):
        _check_adapter(found, adapter)
    _finish(env, report, summary)
    return Exit.PARTIAL if failed or summary.damaged else Exit.OK


def _find(
    env: Environment, operands: list[str], adapter: str, summary: ParseReport
) -> tuple[list[Found], bool]:
    """Find the sessions of every operand; one bad file among several does not stop the others."""
    from agentsdir.engine.native import find_native, may_be_native, stores_of
    from agentsdir.engine.parsing import find_sessions, walk
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.source import Source

    rejected: list[NotATranscript] = []

    def remark(error: NotATranscript) -> None:
        kind = error.kind if error.kind in ("empty-file", "unreadable") else "skipped-file"
        summary.remark(Finding(kind, error.file, None, None, None, error.message))

    files: list[Source] = []
    found: list[Found] = []
    for operand in operands:
        path = env.cwd / operand
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
        elif may_be_native(operand):
            stores = stores_of(env.home, env.cwd, env.variables)
            found.append(find_native(stores, operand).found)
        else:
            hint = "of a session's id, give at least the first 8 characters"
            raise UsageError(f"there is no file {operand}", hint=hint)
    forced = adapter != "auto"
    found = find_sessions(files, adapter, rejected.append, forced=forced) + found
    if not found:
        raise rejected[0] if rejected else NotATranscript(f"no transcripts in {operands[0]}")
    for error in rejected:
        note(env, error.message)
    return found, bool(rejected)


def _check_adapter(found: list[Found], adapter: str) -> None:
    """Refuse an adapter that was forced on files it does not know, and found nothing in them."""
    from agentsdir.engine.parsing import recognises

    for one in found:
        source = one.files.transcripts[0].source
        if not recognises(adapter, source):
            message = f"{source.name} holds nothing that the adapter {adapter!r} can read"
            raise NotATranscript(message, file=source.name, hint="without --adapter, content tells")


def _finish(env: Environment, path: str, summary: ParseReport) -> None:
    """Write the report where it was asked for, and name damage on stderr otherwise."""
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
