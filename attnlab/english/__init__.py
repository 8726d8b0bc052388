"""The model `english`, a small GPT-2 in the package that reads simple English."""
