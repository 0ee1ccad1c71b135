"""The formats of the messages between nodes."""
