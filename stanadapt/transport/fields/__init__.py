"""Learning latent fields: which coordinates they are, and the law of field.py at a design of their heads.

probes.py sees the curvature, heads.py tells which coordinates act on it, precision.py has the latents'
precision, laplace.py finds their modes and where the heads are, law_fit.py makes the law, and
field_learning.py brings them together. several.py divides a panel into series with a field each. dense.py and
filling.py are for dense precisions. innovation_search.py comes before all of them, where latents are written
in innovations, and other_laws.py has the looks for laws of effects and weights.
"""
