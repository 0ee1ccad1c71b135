"""Files of a user: secrets, and the peers that a node remembers. No sockets."""
