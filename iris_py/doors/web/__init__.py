"""The pure part of the web door: the forms of messages for its clients."""
