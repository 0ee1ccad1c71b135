"""The asyncio API: what a program holds."""
