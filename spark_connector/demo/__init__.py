"""The Spark side of `iris demo --spark`."""
