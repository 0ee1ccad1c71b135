"""The door for NATS clients: listener, connections, and the node behind them (docs/design.md 18)."""
