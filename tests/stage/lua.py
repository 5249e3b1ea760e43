"""Scripts as the Redis broker has them, for tests of what carries them."""

from __future__ import annotations

import hashlib


class Lua:
    """A script and its digest."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode()).hexdigest()


ECHO = Lua("return {KEYS[1], ARGV[1]}")
COUNT = Lua("return redis.call('INCRBY', KEYS[1], ARGV[1])")
WRONG = Lua("return redis.call('HGET', KEYS[1], 'field')")
LARGE = Lua("return redis.call('SET', KEYS[1], ARGV[1])")
