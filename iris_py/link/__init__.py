"""One authenticated, encrypted connection between two nodes, without input or output."""
