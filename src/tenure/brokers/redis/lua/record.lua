-- record: the queue's own ledger.  ARGV: run, quiet.  Answers {fields of Q, fields of Q:workers and `running` of each,
-- sizes of ready, due, leases and dead, how many jobs a sweep took away}; the first two names and values in turn.

in_spite_of_full_memory()
catch_up()
write_counts()

-- What runs by worker, after what Q:workers has: nothing is counted when a job is handed out, since its lease tells.
local function workers()
  local running, found = {}, call('HGETALL', Q .. ':workers')
  for _, member in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    local session = member:sub(33)
    local seen = running[session] or {fields(member:sub(1, 32), 'w')[1], 0}
    seen[2] = seen[2] + 1
    running[session] = seen
  end
  local by_name = {}
  for _, seen in pairs(running) do
    if seen[1] then by_name[seen[1]] = (by_name[seen[1]] or 0) + seen[2] end
  end
  for name, n in pairs(by_name) do
    found[#found + 1] = 'running:' .. name
    found[#found + 1] = n
  end
  return found
end

local sizes = {call('ZCARD', READY), call('ZCARD', DUE), call('ZCARD', LEASES), call('ZCARD', DEAD)}
return {call('HGETALL', Q), workers(), sizes, tonumber(call('HGET', Q .. ':swept', 'added') or 0)}
