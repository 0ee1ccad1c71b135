"""Groups over the ring: memberships, membership views, directories at roots, and multicasts."""
