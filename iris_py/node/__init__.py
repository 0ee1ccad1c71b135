"""The core of a node, without I/O: links, overlay and patterns combined."""
