"""`hps prepare`: makes a host ready to start the kit: checks, weights, configuration, images; packs it for others.

Run by prepare.sh, in a container where only Docker is installed. It imports nothing of the pipeline's heavy packages.
"""
