"""`Run` under the loops of others: Hugging Face's Trainer, Lightning, Accelerate."""
