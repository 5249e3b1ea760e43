-- queue: what an operator sees of a queue at a glance.  ARGV: run, quiet, how the cause of a hand-out begins that came
-- to a worker without the task.  Answers {sizes of ready, due, leases and dead, done, added, workers that wait,
-- paused, closed, task, how many of it wait for a worker that knows it, ...}.

local UNKNOWN_WITHIN, UNKNOWN_LOOK = 60000, 20000

in_spite_of_full_memory()
catch_up()
write_counts()
call('ZREMRANGEBYSCORE', IDLE, '-inf', NOW)
local q = call('HMGET', Q, 'done', 'added', 'paused', 'closed')
local answer = {
  call('ZCARD', READY), call('ZCARD', DUE), call('ZCARD', LEASES), call('ZCARD', DEAD), tonumber(q[1] or 0),
  tonumber(q[2] or 0), call('ZCARD', IDLE), q[3] and 1 or 0, q[4] and 1 or 0,
}
local unknown = {}
for _, id in ipairs(call('ZRANGEBYSCORE', DUE, '-inf', NOW + UNKNOWN_WITHIN, 'LIMIT', 0, UNKNOWN_LOOK)) do
  local f = fields(id, 'ho', 'ca', 'm')
  if f[1] == '3' and (f[2] or ''):sub(1, #ARGV[3]) == ARGV[3] then
    local task = head(f[3]).task
    unknown[task] = (unknown[task] or 0) + 1
  end
end
for task, n in pairs(unknown) do
  answer[#answer + 1] = task
  answer[#answer + 1] = n
end
return answer
