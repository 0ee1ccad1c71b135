"""Simulators of the cores alone: links, rings, groups and overlays, without an event loop."""
