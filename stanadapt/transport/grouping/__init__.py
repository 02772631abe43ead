"""Learning groups from draws and scores: their members, scale parameters, locations and numbers.

`choice.choose_groups` is called by group.py and calls the rest. Read groups.py first, for F and the words.
"""
