"""gmiflow: a compiler and runtime for reinforcement-learning workflows on GPU slices (GMIs)."""

__version__ = "0.1.0"
