"""Measurements of the running chain and of its pure parts: `python -m benchmarks` or `make bench`.

Each module has a docstring that says what is measured and how, `run()` that gives figures by name (the unit is part of
the name), and `LIMITS`, the largest (or, for names in `AT_LEAST`, smallest) value that a figure may have on an
otherwise quiet two-core machine.
"""
