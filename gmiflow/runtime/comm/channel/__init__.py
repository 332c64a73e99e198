"""Experience channels between GMIs that hold different roles."""
