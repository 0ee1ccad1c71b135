"""Streams on the disk of this process: files, syncs, recovery, and the embedded log."""
