"""The papers' experiments and diagnoses; they stay in the repository and are not installed."""
