"""Runs golden cases through this implementation and says where its answers differ (`hps conformance`)."""
