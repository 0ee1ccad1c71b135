"""The command `iris top`: the whole network at a glance, printed once, or on the full screen again and again."""
