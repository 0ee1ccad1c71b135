"""The failure detector: SWIM with the extensions of Lifeguard, over datagrams."""
