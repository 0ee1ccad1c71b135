"""How many defects the tests notice: ``make mutants`` puts small ones into the code, one at a time (docs/testing.md).

`sample` chooses them, `reach` finds the tests that execute each, `trial` runs these. cosmic-ray has the defects themselves.
"""
