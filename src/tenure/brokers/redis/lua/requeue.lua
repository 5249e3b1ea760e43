-- requeue: put a dead job back with all its attempts.  ARGV: id.  Answers `ready`, `already STATE`, `unknown`, or
-- {id of the job that holds its key}.

in_spite_of_full_memory()
local job, refused = load_dead(ARGV[1])
if not job then return refused end
local o = head(job.m)
local holder = key_holder(o.task, o.key or job.id)
if holder then return {holder} end
local score = next_score(o.priority)
count('moved', 1)
if call('HGET', job.key, 'xp') then count('expired', -1) end
call('ZREM', DEAD, job.id)
call('HDEL', job.key, 'at', 'ls', 'e', 'y', 'xp', 'x', 'ra', 'c')
call('HSET', job.key, 'st', 2, 'p', score)
call('ZADD', READY, score, job.id)
if o.key then hold_key(o.task, o.key, job.id, o.fingerprint) end
wake()
write_counts()
return 'ready'
