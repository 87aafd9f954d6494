"""All that knows Triton: the launcher, the rendered model repository, and what runs inside the model processes."""
