"""One version for the package, the image tags and the `hps` field of answers."""

VERSION = "0.1.0"
