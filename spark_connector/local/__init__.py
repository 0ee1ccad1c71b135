"""What an executor's agent and the tasks beside it say to each other, over a Unix socket."""
