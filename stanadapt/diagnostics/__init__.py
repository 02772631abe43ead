"""Is the result to be trusted? Statistics, findings in words, and tables."""
