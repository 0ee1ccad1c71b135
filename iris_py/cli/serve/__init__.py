"""`iris serve`: runs a handler or a service of a user's module, in one or several supervised processes."""
