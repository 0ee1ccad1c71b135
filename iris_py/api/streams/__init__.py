"""Streams for programs: append, read and follow."""
