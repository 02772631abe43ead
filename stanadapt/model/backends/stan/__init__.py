"""Stan programs: what compiles them, what runs them, and what answers through BridgeStan's C interface."""
