"""Groups of nodes (clusters, and tables of topics) over the ring: memberships, views, directories and multicasts."""
