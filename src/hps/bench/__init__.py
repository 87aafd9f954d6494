"""`hps bench` and `hps tune`: load on a running service, what it makes of it, and which settings suit it best."""
