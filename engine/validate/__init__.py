"""`validate`: what is on disk, compared with the format."""
