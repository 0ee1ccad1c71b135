"""`iris doctor`: finds faults in settings, machine, network and clusters, and suggests remedies; it changes nothing."""
