"""Runs in folders: what was asked, checkpoints of chains, blocks of draws, and what is read again."""
