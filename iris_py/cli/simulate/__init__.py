"""`iris simulate`: networks of many nodes in one process, under a virtual clock."""
