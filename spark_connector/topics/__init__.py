"""Topics as a data source of Spark."""
