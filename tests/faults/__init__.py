"""`make fault-test`: the running chain under steady load, one fault at a time, and what its clients saw."""
