"""The name under which releases before ML-Agents 0.30 had their Gym wrapper."""
