"""The other nodes and the groups they are in: who is there, and how bytes get there. Without input or output."""
