"""What samples/make_samples.py is made of: the prose, the drawing, and the two families of documents."""
