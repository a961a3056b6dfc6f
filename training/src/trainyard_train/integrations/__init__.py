"""Integrations of `Run` with other training loops: Hugging Face's Trainer, Lightning, Accelerate."""
