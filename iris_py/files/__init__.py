"""Files of a user: secrets and remembered peers. No sockets."""
