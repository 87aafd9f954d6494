"""Hostile input by the thousand: our OpenAPI document turned on the gateway, and mutated files on the decoders.

`make fuzz` is the long form; the tests here are the short one.
"""
