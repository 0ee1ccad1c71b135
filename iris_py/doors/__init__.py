"""Doors: they let in programs that are not nodes (docs/design.md 17).

This folder is the pure part, which all doors share: rights, limits, problems, settings. Input and output are in
:mod:`iris_py.servers`.
"""
