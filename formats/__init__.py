"""The format: how transcripts are read, and how an agents directory is written.

Two shelves: `reading` (lines, decoding, findings, blocks, stream events, the reducer) and
`directory` (paths, ids, records, journal, locks, states, fold, derived files).
"""
