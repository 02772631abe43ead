"""Learning latent fields: which coordinates they are, and the law of field.py at a design of their heads.

probes.py sees the curvature, precision.py has the latents' precision, laplace.py finds their modes and where
the heads are, law_fit.py makes the law, and field_learning.py brings them together. dense.py and filling.py
are for dense precisions. innovation_search.py comes before all of them, where latents are written in
innovations.
"""
