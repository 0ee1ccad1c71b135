"""NATS clients: their protocol, subscriptions and rights, without input or output (docs/design.md 18)."""
