"""ckptguard: proves that a distributed training checkpoint is valid, before anything resumes from it."""

__version__ = "0.1.0"
