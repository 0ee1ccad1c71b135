"""Other nodes, the groups they are in, and the sending of messages to them. Without I/O."""
