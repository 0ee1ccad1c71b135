"""The command `iris top`: an overview of the network, on the full screen and refreshed, or printed once."""
