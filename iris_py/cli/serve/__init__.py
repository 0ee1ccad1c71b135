"""`iris serve`: a handler of somebody's module as a service, in one process or in several that are watched."""
