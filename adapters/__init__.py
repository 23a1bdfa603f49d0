"""Agent architectures: one folder each, and nothing about any of them anywhere else."""
