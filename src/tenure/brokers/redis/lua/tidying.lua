-- The queue's rules, part 6: time passing.  Every take does a bounded part of it, so that nothing else has to run.

local PROMOTE_BATCH = 200
local RETURN_BATCH = 100
local EXPIRE_BATCH = 200

-- Give every running lease its full time again where the server did not answer for a while; see looking.lua.
local function look_at_gap()
  if GONE then
    for _, member in ipairs(call('ZRANGE', LEASES, 0, -1)) do
      local lease_end = NOW + (tonumber(fields(member:sub(1, 32), 'v')[1]) or 0)
      call('ZADD', LEASES, SET_BACK and 'CH' or 'GT', lease_end, member)
    end
    queue[3] = NOW + FLOOR
    call('HSET', Q, 'keep', queue[3])
    call('HDEL', Q, 'soon')
    SOON = nil
  end
  note_run()
end

-- The first time in a set of times.
local function first_of(set)
  return tonumber(call('ZRANGE', set, 0, 0, 'WITHSCORES')[2] or LAST_MOMENT)
end

local function promote_one(id)
  local m = call('HGET', JOB .. id, 'm') or error('it has no message')
  call('ZREM', DUE, id)
  local score = next_score(options(m).priority)
  count('moved', 1)
  call('ZADD', READY, score, id)
  call('HSET', JOB .. id, 'st', 2, 'p', score)
  call('HDEL', JOB .. id, 'ra')
end

local function promote()
  for _, id in ipairs(call('ZRANGEBYSCORE', DUE, '-inf', NOW, 'LIMIT', 0, PROMOTE_BATCH)) do
    guarded(promote_one, id)
  end
end

local function return_leases()
  for _, member in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', NOW, 'LIMIT', 0, RETURN_BATCH)) do
    guarded(cut_off, member:sub(1, 32), 5, 'the lease ran out')
    call('ZREM', LEASES, member)  -- which is another one where the job's record names another session
  end
end

local function expire()
  for _, id in ipairs(call('ZRANGEBYSCORE', EXPIRING, '-inf', NOW, 'LIMIT', 0, EXPIRE_BATCH)) do
    guarded(end_waiting, id, 5, 'expired')
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

local function write_sums(sums)
  for name, n in pairs(sums) do call('HINCRBY', Q .. ':swept', name, n) end
end

local function sweep_job(sums, id)
  local f = fields(id, 'st', 'n', 'w', 'ho', 'l')
  local state = ({['4'] = 'done', ['6'] = 'cancelled', ['7'] = 'purged'})[f[1]]
  if not state then return end
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
  end
end

-- Where there was more to sweep than one call does, each call goes on with it.
local function sweep(most)
  local old = call('ZRANGEBYSCORE', ENDED, '-inf', NOW, 'LIMIT', 0, most)
  local sums = {}
  for _, id in ipairs(old) do
    pcall(sweep_job, sums, id)  -- of a spoiled record what can be read is counted
    call('ZREM', ENDED, id)
    call('DEL', JOB .. id, long(id), Q .. ':h:' .. id)
  end
  write_sums(sums)
  call('HSET', Q, 'swept', NOW)
  if #old == most then
    call('HSET', Q, 'old', '1')
  elseif queue[5] then
    call('HDEL', Q, 'old')
  end
end

-- The hand-out before the one that begins now is kept; of very many the oldest go.
local function keep_handout(id)
  local history, job = Q .. ':h:' .. id, JOB .. id
  local f = call('HMGET', job, 'n', 's', 'w', 'tk', 'v', 'hb', 'he', 'ho', 'l', 'ca', 'er')
  local number = tonumber(f[1])
  for _, at in ipairs({1, 4, 5, 6, 7, 8}) do
    if not tonumber(f[at]) then error('its last hand-out is spoiled') end
  end
  call('RPUSH', history, cmsgpack.pack({number, f[2], f[3], tonumber(f[4]), tonumber(f[5]), tonumber(f[6]),
    tonumber(f[7]), tonumber(f[8]), f[9] and 1 or 0, f[10] or '', f[11] or ''}))
  call('HDEL', job, 'he', 'ho', 'l', 'ca', 'er')
  if number <= KEPT then return end
  local sums = {}
  for _ = 1, 2 do
    local oldest = cmsgpack.unpack(call('LINDEX', history, 0))
    if oldest[1] > number - KEPT or oldest[7] > NOW - FLOOR then break end
    sweep_handout(sums, oldest)
    call('LPOP', history)
  end
  write_sums(sums)
end

-- What time has brought: every script that is told `run` and `quiet` begins with it.
local function catch_up()
  look_at_gap()
  if not SOON or SOON <= NOW then
    if first_of(DUE) <= NOW then promote() end
    if first_of(LEASES) <= NOW then return_leases() end
    SOON = math.min(first_of(DUE), first_of(LEASES))
    call('HSET', Q, 'soon', SOON)
  end
  if queue[4] then expire() end
end
