"""The web door: programs and pages that speak HTTP use a network (docs/design.md 17)."""
