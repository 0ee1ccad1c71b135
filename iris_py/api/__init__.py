"""The asyncio API: the public objects of a program."""
