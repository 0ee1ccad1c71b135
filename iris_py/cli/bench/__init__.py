"""`iris bench`: the speed of requests, topics, tunnels and joins, on this machine or in a running network."""
