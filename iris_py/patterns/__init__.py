"""The communication patterns, without I/O."""
