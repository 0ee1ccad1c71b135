"""The side of Spark of `iris demo --spark`."""
