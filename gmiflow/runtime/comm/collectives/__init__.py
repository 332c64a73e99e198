"""Collectives, one file per primitive behind `base.Collective`."""
