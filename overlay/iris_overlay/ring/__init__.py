"""The routed ring: Pastry with the consistency of MSPastry."""
