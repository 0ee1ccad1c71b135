"""The dashboard of a web door: what the commands that look at a network show, in a browser and read-only."""
