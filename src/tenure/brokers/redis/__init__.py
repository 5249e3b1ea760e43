"""Jobs in a Redis or Valkey server: the queue's rules are Lua scripts that run there."""
