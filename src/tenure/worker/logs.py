"""Where a worker that was started from the command line writes its log."""

from __future__ import annotations

import logging
import sys


def configure(level: str) -> None:
    """Write the `tenure` loggers to stderr from this level on; the root logger is left alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s [%(process)d] %(message)s"))
    logger = logging.getLogger("tenure")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
