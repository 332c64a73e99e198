"""Where this user's caches are: nothing that is kept there is missed when it is gone, except measurements."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path | None:
    """`$XDG_CACHE_HOME`, else `.cache` in the home directory; None for a user who has none.

    A container may run under the number of a user that no file knows, and without `$HOME`.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        return None
