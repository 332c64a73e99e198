"""From the launch plan to Python programs."""
