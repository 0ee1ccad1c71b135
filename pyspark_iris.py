"""The door for Spark to ``format("iris")``: looking for data sources, it imports every top-level module ``pyspark_*``.

Spark does so in every session, whatever that reads: a machine that lacks what Iris needs must not lose its other sources.
"""

import warnings

try:
    from spark_connector.topics.datasource import IrisDataSource as DefaultSource
except ImportError as exc:
    from iris_py.connector import install_command

    warnings.warn(f"there is no format 'iris': {exc}. Run: {install_command('spark')}", stacklevel=2)
else:
    __all__ = ["DefaultSource"]
