"""`iris doctor`: looks for faults in settings, machine, network and clusters, and says what to do; it changes nothing."""
