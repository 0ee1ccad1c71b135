"""Checks of what is released: the files, what they install, and what changed for programs. Run by `make release-check`."""
