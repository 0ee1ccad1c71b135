"""DataFrames dispatched to clusters, and told to topics: the driver's side, and what runs in Spark's tasks."""
