"""How many defects the tests notice: ``make mutants`` puts small ones into the code, one at a time (CONTRIBUTING.md).

`sample` chooses them, `reach` finds the tests that execute each, `trial` runs these. cosmic-ray has the defects themselves. For
a kill matrix, `full_trial` runs all tests of each defect, and `matrix` says the worth of each test.
"""
