"""Revisions of runs and of `tokens`: what cached answers are held against."""
