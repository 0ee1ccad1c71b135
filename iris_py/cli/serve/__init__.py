"""`iris serve`: a handler of a user's module as a service, in one or several supervised processes."""
