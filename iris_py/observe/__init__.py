"""Numbers and events of a node: what it counts while it works, and the form in which it shows them (docs/statistics.md)."""
