"""The command `iris top`: an overview of the network, printed once or refreshed on the full screen."""
