"""From what a client sends (Base64 or a URL) to page bitmaps: sources, fetch and pool; worker processes decode.

Nothing is imported here on purpose: a worker imports only what it decodes with, and starts in a tenth of a second.
"""
