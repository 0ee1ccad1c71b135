"""The formats of what nodes send each other."""
