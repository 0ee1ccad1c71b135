"""Executors of a Spark application as members of a cluster."""
