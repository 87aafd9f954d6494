"""The HTTP front of the kit: admits requests, passes their bytes to Triton, relays the answers (SPEC A).

Of `hps` it uses only settings, errors, contract, metrics and version, so that its image needs nothing of the pipeline.
"""
