"""Simulators in an interpreter of their own: the shim that hosts a class there, and the GMI's side of it."""
