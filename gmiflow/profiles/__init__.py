"""Measured and modelled costs."""
