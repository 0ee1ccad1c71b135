"""The state of a network, made from the answers of its nodes: for the commands that show it, and for doors."""
