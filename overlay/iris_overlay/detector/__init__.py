"""The failure detector: SWIM with Lifeguard's lessons, over datagrams."""
