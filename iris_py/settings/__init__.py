"""The sources of settings, and the check of each value; :mod:`iris_py.config` combines them into the settings of a node."""
