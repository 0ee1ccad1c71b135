"""`iris bench`: how fast requests, topics, tunnels and joins are on this machine, or against a network that runs."""
