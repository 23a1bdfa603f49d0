"""The agents directory on disk (SPEC.md): where files stand, and how they are written."""
