"""Learning groups from draws and scores: their members, scale parameters, locations and numbers.

group.py calls `choice.choose_groups`, which calls the rest. Read groups.py first: it explains words and F.
"""
