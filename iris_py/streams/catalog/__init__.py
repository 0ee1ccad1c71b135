"""The catalog: the stores and streams of a network, and the stores of each partition, as a machine over one group's log."""
