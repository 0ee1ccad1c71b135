"""Servers: the input and output of doors (docs/design.md 17). The part without input and output is :mod:`iris_py.doors`."""
