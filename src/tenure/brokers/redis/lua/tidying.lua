-- The queue's rules, part 4: time passing.  Every take does a bounded part of it, so that nothing else has to run.
-- The scripts that use this are told two things first: ARGV[1] run, which run of the server this is, and ARGV[2] quiet.

local PROMOTE_BATCH = 200
local RETURN_BATCH = 100
local EXPIRE_BATCH = 200
local GAP = 1000

-- A server that did not answer for a while gives every running lease its full time again.  Two signs tell of it: it
-- is another run of the server than the last time, or the worker has wanted something for longer than a second while
-- no worker was answered (`quiet`: milliseconds in which it wanted nothing since its last answer; empty: no answer yet).
local function look_at_gap()
  local run, quiet = ARGV[1], ARGV[2]
  local q = call('HMGET', Q, 'run', 'seen')
  local seen = tonumber(q[2] or 0)
  local gone = q[1] and q[1] ~= run
  if seen > 0 and quiet ~= '' and NOW - seen - tonumber(quiet) > GAP then gone = true end
  if gone then
    for _, member in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', '+inf')) do
      local vt = tonumber(call('HGET', JOB .. member:sub(1, 32), 'v'))
      call('ZADD', LEASES, 'GT', whole(NOW + vt), member)
    end
    call('HSET', Q, 'keep', whole(NOW + FLOOR))
  end
  if gone or q[1] ~= run or NOW - seen > 200 or NOW < seen then call('HSET', Q, 'run', run, 'seen', NOW) end
end

local function promote()
  local due = call('ZRANGEBYSCORE', DUE, '-inf', NOW, 'LIMIT', 0, PROMOTE_BATCH)
  for _, id in ipairs(due) do
    local score = next_score(options(call('HGET', JOB .. id, 'm')).priority)
    call('ZREM', DUE, id)
    call('ZADD', READY, score, id)
    call('HSET', JOB .. id, 'st', 2, 'p', score)
    call('HDEL', JOB .. id, 'ra')
  end
end

local function return_leases()
  for _, member in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', NOW, 'LIMIT', 0, RETURN_BATCH)) do
    cut_off(load(member:sub(1, 32)), 5, 'the lease ran out')
  end
end

local function expire()
  for _, id in ipairs(call('ZRANGEBYSCORE', EXPIRING, '-inf', NOW, 'LIMIT', 0, EXPIRE_BATCH)) do
    end_waiting(load(id), 5, 'expired')
  end
end

local function sweep_handout(sums, h)
  local how = '/' .. HOW[h[8]]
  for _, name in ipairs({'handed_out', how, 'handed_out:' .. h[3], how .. ':' .. h[3]}) do
    sums[name] = (sums[name] or 0) + 1
  end
  if h[9] == 1 then
    sums['refused'] = (sums['refused'] or 0) + 1
    sums['refused:' .. h[3]] = (sums['refused:' .. h[3]] or 0) + 1
  end
end

local function last_handout(f)
  return {tonumber(f.n), f.s, f.w, tonumber(f.tk), tonumber(f.v), tonumber(f.hb), tonumber(f.he), tonumber(f.ho),
    f.l and 1 or 0, f.ca or '', f.er or ''}
end

local function write_sums(sums)
  for name, n in pairs(sums) do call('HINCRBY', Q .. ':swept', name, n) end
end

local function sweep_job(sums, id)
  local f = call('HMGET', JOB .. id, 'st', 'n', 'w', 'ho', 'l')
  local state = ({['4'] = 'done', ['6'] = 'cancelled', ['7'] = 'purged'})[f[1]]
  sums['added'] = (sums['added'] or 0) + 1
  sums[state] = (sums[state] or 0) + 1
  local number = tonumber(f[2] or 0)
  if number > 0 then
    sweep_handout(sums, {number, '', f[3], 0, 0, 0, 0, tonumber(f[4]), f[5] and 1 or 0})
  end
  if number > 1 then
    for _, packed in ipairs(call('LRANGE', Q .. ':h:' .. id, 0, -1)) do
      sweep_handout(sums, cmsgpack.unpack(packed))
    end
    call('DEL', Q .. ':h:' .. id)
  end
  call('DEL', JOB .. id)
  call('ZREM', ENDED, id)
end

local function sweep(most)
  local old = call('ZRANGEBYSCORE', ENDED, '-inf', NOW, 'LIMIT', 0, most)
  if #old == 0 then return end
  if tonumber(call('HGET', Q, 'keep') or 0) > NOW then return end
  local sums = {}
  for _, id in ipairs(old) do sweep_job(sums, id) end
  write_sums(sums)
end

-- The hand-out before the one that begins now is kept; of very many the oldest go.
local function keep_handout(id, f)
  local history = Q .. ':h:' .. id
  call('RPUSH', history, cmsgpack.pack(last_handout(f)))
  if tonumber(f.n) <= KEPT then return end
  local sums = {}
  for _ = 1, 2 do
    local oldest = cmsgpack.unpack(call('LINDEX', history, 0))
    if oldest[1] > tonumber(f.n) - KEPT or oldest[7] > NOW - FLOOR then break end
    sweep_handout(sums, oldest)
    call('LPOP', history)
  end
  write_sums(sums)
end

-- What time has brought: every script that is told `run` and `quiet` begins with it.
local function catch_up()
  in_spite_of_full_memory()
  look_at_gap()
  promote()
  return_leases()
  expire()
end

-- Milliseconds until something becomes due; -1: nothing is.
local function next_due()
  local next = -1
  for _, set in ipairs({DUE, LEASES}) do
    local head = call('ZRANGE', set, 0, 0, 'WITHSCORES')
    if head[2] then
      local left = math.max(0, tonumber(head[2]) - NOW)
      if next < 0 or left < next then next = left end
    end
  end
  return next
end
