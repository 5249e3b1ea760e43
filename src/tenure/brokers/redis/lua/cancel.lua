-- cancel: a caller's wish that a job does not run, or not on.  ARGV: id, 1 ask or 2 terminate, how long it stays.
-- Answers the words, or `unknown`.

in_spite_of_full_memory()
local id = ARGV[1]
local first = fields(id, 'st', 'f')
if first[1] == '8' then id = first[2] or id end
local job = load(id)
if not job then return 'unknown' end
if job.state <= 2 then
  guarded(end_waiting, id, 6, 'cancelled', tonumber(ARGV[3]))
  write_counts()
  return call('ZSCORE', DEAD, id) and 'already dead' or 'cancelled'
end
if job.state ~= 3 then
  local word = ({[4] = 'done', [5] = 'dead', [6] = 'cancelled', [7] = 'dead'})[job.state]
  return word and 'already ' .. word or 'unknown'
end
call('HSET', job.key, 'c', math.max(tonumber(job.cancel) or 0, tonumber(ARGV[2])), 'ttl', ARGV[3])
return 'asked'
