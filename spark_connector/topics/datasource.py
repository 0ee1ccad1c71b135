"""Topics as a data source of Spark: ``spark.readStream.format("iris")``, ``df.write`` and ``df.writeStream``.

PySpark finds the data source through the module ``pyspark_iris``. It runs in Python processes of Spark: for reading, one to
check options, one to plan (see ``reader.py``), and the tasks; for writing, one to check options, and the tasks.
"""

from __future__ import annotations

import uuid
import warnings
from typing import Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from iris_py import ConfigurationError
from spark_connector.topics.options import read_options, table_options, write_options
from spark_connector.topics.reader import RefusingReader, TopicReader
from spark_connector.topics.writer import StreamTopicWriter, TopicWriter, WritePlan, check_columns

__all__ = ["IrisDataSource"]

#: The columns read from a topic; ``buffer.SCHEMA`` is the Arrow equivalent.
COLUMNS: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("source", StringType()),
        StructField("sequence", LongType()),
        StructField("value", BinaryType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("timestamp", TimestampType()),
    ]
)


#: The key of a table's options in the metadata of its first column. Spark gives the writer no options of the table, but its
#: columns as declared at creation.
METADATA: Final = "iris"
#: Spark's mark for a text of type ``VARCHAR``, here of any length. Spark passes rows with exactly the table's names and types
#: to the writer unchanged, without the table's metadata. No rows have this type, so they always receive the table's metadata.
LONGEST_TEXT: Final = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(2147483647)"}


class IrisDataSource(DataSource):
    """Topics of Iris. :mod:`spark_connector.topics.options` has the options, and docs/spark.md explains them."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "iris"

    def schema(self) -> StructType:
        """Return the columns of a topic. This checks the options, because it is Spark's first call for reading.

        A table created without columns has those for an ``INSERT``: the value, and the topic if no option names it.

        Raises:
            ConfigurationError: An option is wrong.
        """
        table = table_options(self.options)
        if table is not None:
            columns = StructType([StructField("value", StringType(), metadata={METADATA: table, **LONGEST_TEXT})])
            return columns if "topic" in table else columns.add("topic", StringType())
        topic = read_options(self.options).topic
        warnings.warn(
            f"the topic {topic!r} is not stored: the query gets each message at most once, and none that is published while it "
            "does not run. See docs/spark.md.",
            stacklevel=2,
        )
        return COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query. If an option or the schema is wrong, the reader raises the error on use."""
        try:
            if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in COLUMNS]:
                raise ConfigurationError(
                    f"a topic has the columns {_names(COLUMNS)}, not {_names(schema)}. Leave out schema(), and use select()."
                )
            return TopicReader(read_options(self.options))
        except ConfigurationError as exc:
            return RefusingReader(str(exc))  # Spark would hide an error raised here behind one of its own

    def reader(self, schema: StructType) -> NoReturn:
        """Refuse a batch read, because topics are not stored.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            "a topic is not stored, so spark.read would find no messages. Use spark.readStream.format('iris'), which reads "
            "the messages that are published after its start."
        )

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        """Return the writer that publishes a DataFrame.

        Raises:
            ConfigurationError: An option, a column or the mode is wrong.
        """
        return TopicWriter(self._plan(schema, overwrite, "mode('overwrite')", "mode('append')"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamTopicWriter:
        """Return the writer that publishes the micro-batches of a streaming query.

        Raises:
            ConfigurationError: An option, a column or the mode is wrong.
        """
        return StreamTopicWriter(self._plan(schema, overwrite, "outputMode('complete')", "outputMode('append') or 'update'"))

    def _plan(self, schema: StructType, overwrite: bool, mode: str, instead: str) -> WritePlan:
        options = write_options({**_table_options(schema), **self.options})
        if overwrite:
            raise ConfigurationError(f"published messages cannot be replaced, as {mode} requires. Use {instead}.")
        check_columns(schema, options)
        return WritePlan(options, uuid.uuid4().hex)


def _table_options(schema: StructType) -> dict[str, str]:
    """Return the options of the table that is written; an empty dict if the target is no table, or was created with columns."""
    for field in schema.fields:
        options = (field.metadata or {}).get(METADATA)
        if isinstance(options, dict):
            return options
    return {}


def _names(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
