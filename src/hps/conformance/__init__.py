"""Runs golden cases against this implementation (`hps conformance`)."""
