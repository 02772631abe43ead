"""What runs the chains: threads, processes or a cluster, and how chains take turns."""
