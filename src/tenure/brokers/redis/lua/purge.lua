-- purge: take a dead job off the list for good; its id stays known for a while.  ARGV: id.  Answers `purged`,
-- `already STATE` or `unknown`.

in_spite_of_full_memory()
local job, refused = load_dead(ARGV[1])
if not job then return refused end
if call('HGET', job.key, 'xp') then count('expired', -1) end
call('ZREM', DEAD, job.id)
call('HDEL', job.key, 'b', 'xp', 'er')
call('DEL', long(job.id))
call('HSET', job.key, 'st', 7, 'e', NOW)
call('ZADD', ENDED, keep_until(0), job.id)
count('purged', 1)
write_counts()
return 'purged'
