"""Reading transcripts: bytes to rows, rows to blocks, streams to blocks, and what was wrong."""
