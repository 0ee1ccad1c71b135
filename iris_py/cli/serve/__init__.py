"""`iris serve`: a handler of a user's module as a service, in one process or in several supervised ones."""
