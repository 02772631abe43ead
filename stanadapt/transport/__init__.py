"""Coordinates in which a posterior is nearly normal.

Each law has a file (tail.py, bend.py, error_scale.py, ridge.py, group.py) with the same functions: into_x,
into_z, pull_back and score_in_x for kernels, and are_valid, learn and describe. map_table.py says how kernels
hold a map, composition.py applies the laws of a map one after another, and learning.py decides between them.
"""
