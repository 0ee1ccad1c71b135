"""The pure part of the web door: requests as bytes, and the forms of messages for its clients."""
