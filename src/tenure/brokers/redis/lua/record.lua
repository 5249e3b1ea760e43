-- record: the queue's own ledger.  ARGV: run, quiet, `verify` to recount it from the jobs in the same step.  Answers {fields of Q,
-- fields of Q:workers, sizes of ready, due, leases and dead, recount, what is wrong}; each of the first two and of the
-- recount names and values in turn.

in_spite_of_full_memory()
catch_up()
write_counts()

local SETS = {
  {READY, {['2'] = 'ready'}}, {DUE, {['1'] = 'scheduled'}}, {LEASES, {['3'] = 'running'}}, {DEAD, {['5'] = 'dead'}},
  {ENDED, {['4'] = 'done', ['6'] = 'cancelled', ['7'] = 'purged'}},
}
local recounted, wrong = {}, {}

local function found(name, n)
  recounted[name] = (recounted[name] or 0) + n
end

local function accuse(id, what)
  if #wrong < 20 then wrong[#wrong + 1] = 'job ' .. id .. ': ' .. what end
end

local function recount_handout(id, h, running)
  local worker = ':' .. h[3]
  found('handed_out', 1)
  found('handed_out' .. worker, 1)
  if running then
    found('running' .. worker, 1)
  else
    local how = '/' .. HOW[h[8]]
    found(how, 1)
    found(how .. worker, 1)
  end
  if h[9] == 1 then
    found('refused', 1)
    found('refused' .. worker, 1)
  end
end

local function recount_job(id, f, states)
  local name = states[f[1]]
  if not name then
    return accuse(id, 'it is where no job of state ' .. tostring(f[1]) .. ' can be')
  end
  found('added', 1)
  found(name, 1)
  if name == 'dead' and f[6] then found('expired', 1) end
  local number = tonumber(f[2] or 0)
  if (name == 'running') ~= (number > 0 and not f[4]) then accuse(id, 'its hand-out and its state contradict') end
  if number > 0 then
    recount_handout(id, {number, '', f[3], 0, 0, 0, 0, tonumber(f[4]), f[5] and 1 or 0}, name == 'running')
  end
  if number < 2 then return end
  local history = call('LRANGE', Q .. ':h:' .. id, 0, -1)
  for _, packed in ipairs(history) do recount_handout(id, cmsgpack.unpack(packed), false) end
  if #history < math.min(number - 1, KEPT) then accuse(id, 'earlier hand-outs are missing') end
end

if ARGV[3] == 'verify' then
  for _, set in ipairs(SETS) do
    for _, member in ipairs(call('ZRANGE', set[1], 0, -1)) do
      local id = member:sub(1, 32)
      recount_job(id, call('HMGET', JOB .. id, 'st', 'n', 'w', 'ho', 'l', 'xp'), set[2])
    end
  end
  local swept = call('HGETALL', Q .. ':swept')
  for at = 1, #swept, 2 do found(swept[at], tonumber(swept[at + 1])) end
end
local flat = {}
for name, n in pairs(recounted) do
  flat[#flat + 1] = name
  flat[#flat + 1] = n
end
local sizes = {call('ZCARD', READY), call('ZCARD', DUE), call('ZCARD', LEASES), call('ZCARD', DEAD)}
return {call('HGETALL', Q), call('HGETALL', Q .. ':workers'), sizes, flat, wrong}
