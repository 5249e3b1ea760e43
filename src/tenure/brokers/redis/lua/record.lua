-- record: the queue's own ledger.  ARGV: run, quiet.  Answers {fields of Q, fields of Q:workers, sizes of ready, due,
-- leases and dead, how many jobs a sweep took away}; the first two names and values in turn.

in_spite_of_full_memory()
catch_up()
write_counts()
local sizes = {call('ZCARD', READY), call('ZCARD', DUE), call('ZCARD', LEASES), call('ZCARD', DEAD)}
return {call('HGETALL', Q), call('HGETALL', Q .. ':workers'), sizes, tonumber(call('HGET', Q .. ':swept', 'added') or 0)}
