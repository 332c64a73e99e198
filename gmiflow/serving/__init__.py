"""Answers action requests from a trained policy: the server of `gmiflow serve`, and its client."""

from __future__ import annotations

from gmiflow.serving.client import PolicyClient, RefusedError

__all__ = ["PolicyClient", "RefusedError"]
