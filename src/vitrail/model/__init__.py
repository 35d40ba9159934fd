"""The model: pure tensors. Read vit.py first, then encoder.py; the rest is detail."""
