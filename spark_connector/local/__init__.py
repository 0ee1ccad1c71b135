"""The socket between an executor's agent and the tasks beside it."""
