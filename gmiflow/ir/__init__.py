"""Intermediate representations: one frozen type per arrow of the pipeline."""
