"""Statistics and events of a node: the counters of its work, and their public form (docs/statistics.md)."""
