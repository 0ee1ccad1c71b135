"""One node without input or output: links, overlay and patterns put together."""
