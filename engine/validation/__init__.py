"""`validate`: what is on disk, held against the format."""
