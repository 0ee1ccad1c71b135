"""Iris on Spark: executors as a cluster, jobs that dispatch work to clusters. Nothing is here yet; the name is reserved."""
