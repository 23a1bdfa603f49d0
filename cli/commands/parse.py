"""`agentsdir parse`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli.parsing import Manner, parse
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from agentsdir.formats.sink import View


def run(
    ctx: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE|DIR|ID|AGENT|-...", help="Transcripts, native ids, agents"),
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
    or its first 8 characters or more, is a session in a client's own store, with its subagents; an
    AGENT is the session that it goes on with. Damaged input is read as far as it goes, named on
    stderr, and exits 3.
    """
    del as_json
    if view not in ("live", "all"):
        raise UsageError(f"there is no view {view!r}", hint="live or all")
    chosen: View = "all" if view == "all" else "live"
    return parse(ctx.obj, paths, Manner(adapter, chosen, hidden, report))
