"""The settings of a Spark application for Iris: settings for agents before the first session, and ``spark.iris.*``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_py import ConfigurationError
from iris_py.connector import check_flag
from spark_connector.daemon import MODULE
from spark_connector.network import Network, field_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["configure", "network_of"]

_PREFIX: Final = "spark.iris."
#: The kinds of values that settings of Iris may have in Spark's configuration.
_SHAPES: Final = ("text", "choice", "path", "addresses", "flag", "number")
#: The fields of :class:`Network` and their settings, by the name in Spark's configuration without the prefix.
_FIELDS: Final = {
    "network" if name == "name" else name.replace("_", "."): (name, setting) for name, setting in field_settings().items()
}
#: The names of accepted settings, without the prefix.
_ACCEPTED: Final = {name for name, (_field, setting) in _FIELDS.items() if setting.shape in _SHAPES}
#: The names of refused settings. Spark redacts such names in its user interface, but shows them on command lines. A command
#: could be set by any user with access to SQL, and would run on every executor.
_REFUSED: Final = _FIELDS.keys() - _ACCEPTED


def configure(builder: SparkSession.Builder, *, accelerate: bool = True, fair: bool = True) -> SparkSession.Builder:
    """Set what lets executors' agents start early. Call it before the first session, because Spark reads these settings only
    once.

    None of it is required or secret. With ``spark-submit`` or in ``spark-defaults.conf``, set the same values there.

    Args:
        builder: ``SparkSession.builder``.
        accelerate: Set ``spark.python.daemon.module`` to ``spark_connector.daemon``: an agent begins to start with the first
            Python task of its executor. Every executor must then have this package, or no Python task runs there;
            ``--py-files`` arrive too late.
        fair: Set ``spark.scheduler.mode`` to ``FAIR``: agents of new executors do not wait for the end of a long job.

    Returns:
        The builder.

    Raises:
        ConfigurationError: An argument is wrong, or a session exists already.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if not isinstance(builder, SparkSession.Builder):
        raise ConfigurationError(f"builder is {type(builder).__qualname__}, but must be SparkSession.builder.")
    check_flag("accelerate", accelerate)
    check_flag("fair", fair)
    if SparkContext._active_spark_context is not None:
        raise ConfigurationError(
            "a Spark session runs already, and has read its settings. Call configure() before the first one."
        )
    if accelerate:
        builder = builder.config("spark.python.daemon.module", MODULE)
    if fair:
        builder = builder.config("spark.scheduler.mode", "FAIR")
    return builder


def network_of(spark: SparkSession) -> Network:
    """Return the network described by a session's ``spark.iris.*`` settings; ``Network()`` if the session has none.

    Args:
        spark: The session, also one of Spark Connect.

    Raises:
        ConfigurationError: A setting is unknown, wrong, or would hold a secret.
    """
    given = _given(spark)
    for name in given:
        if name in _REFUSED:
            raise ConfigurationError(
                f"{_PREFIX}{name} is not a setting, because others can read or change Spark's settings. Write the secret "
                f"into a file that only its user can read, on each executor, and give its path with {_PREFIX}secret.file; or "
                "set IRIS_SECRET_COMMAND in the environment of Spark's processes."
            )
        if name not in _ACCEPTED:
            known = ", ".join(_PREFIX + each for each in sorted(_ACCEPTED))
            raise ConfigurationError(f"the setting {_PREFIX}{name} is unknown; there are {known}. Correct it.")
    values: dict[str, Any] = {_FIELDS[name][0]: _parse(name, text) for name, text in given.items()}
    return Network(**values)


def _given(spark: SparkSession) -> dict[str, str]:
    """Return a session's ``spark.iris.*`` settings, without the prefix."""
    conf: Any = spark.conf
    try:
        everything = dict(conf.getAll)
    except AttributeError:  # before Spark 4.0 a session does not list its settings
        everything = dict(spark.sparkContext.getConf().getAll())
        names = [_PREFIX + name for name in _FIELDS]
        everything.update({name: text for name in names if (text := conf.get(name, None)) is not None})
    return {name.removeprefix(_PREFIX): str(text) for name, text in everything.items() if name.startswith(_PREFIX)}


def _parse(name: str, text: str) -> object:
    """Parse the text of a setting.

    Raises:
        ConfigurationError: The text is not a valid value of this setting.
    """
    if not text.strip():
        raise ConfigurationError(f"{_PREFIX}{name} is empty. Give it a value, or leave it out.")
    shape = _FIELDS[name][1].shape
    if shape == "addresses":
        return [part.strip() for part in text.split(",") if part.strip()]
    if shape == "flag":
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"{_PREFIX}{name}={text!r} must be true or false.")
        return text.lower() == "true"
    if shape == "number":
        if not text.isascii() or not text.isdecimal() or int(text) < 1:
            raise ConfigurationError(f"{_PREFIX}{name}={text!r} must be a whole number, at least 1.")
        return int(text)
    return text
