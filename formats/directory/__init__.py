"""The agents directory on disk (SPEC.md): where things stand, and how they are written."""
