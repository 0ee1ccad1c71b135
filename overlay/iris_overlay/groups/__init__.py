"""Groups over the ring: memberships, views, directories at roots, and casts."""
