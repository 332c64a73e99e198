"""Execution lowerings of the training iteration, and the pieces they share."""
