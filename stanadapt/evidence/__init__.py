"""Evidences of models from their fits, and what they say of the models beside each other.

The public functions are `log_evidence` in evidence_estimate.py, and `compare_models` in model_table.py.
"""
