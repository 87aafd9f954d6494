"""Little real servers that stand for the parts around the one under test."""
