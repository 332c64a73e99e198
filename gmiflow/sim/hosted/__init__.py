"""Adapters for simulators in an interpreter of their own: files for Python 3.8 that import nothing of gmiflow."""
