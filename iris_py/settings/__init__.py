"""The sources of settings, and the check of each value; :mod:`iris_py.config` makes the settings of a node of them."""
