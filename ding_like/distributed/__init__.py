"""Workers that hold a policy: the local sampler, and how parameters reach them."""
