"""Groups of nodes (the clusters and topics of users) over the ring: memberships, views, directories and multicasts."""
