"""The doctor: checks of a node's settings, its machine and its network, and the surroundings that they observe."""
