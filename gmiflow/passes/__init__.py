"""Passes: pure functions from one intermediate representation to the next."""
