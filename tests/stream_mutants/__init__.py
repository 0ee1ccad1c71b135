"""Defects of replication that the simulator has to find: ``make mutants-streams`` (CONTRIBUTING.md)."""
