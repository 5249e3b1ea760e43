-- The queue's rules, part 4: time passing.  Every take does a bounded part of it, so that nothing else has to run.
-- The scripts that use this are told two things first: ARGV[1] run, which run of the server this is, and ARGV[2] quiet.

local PROMOTE_BATCH = 200
local RETURN_BATCH = 100
local EXPIRE_BATCH = 200
local GAP = 1000

local SWEEP_BATCH = 100

local queue = call('HMGET', Q, 'run', 'seen', 'keep', 'aging', 'old', 'paused', 'out', 'swept')
local SEEN = tonumber(queue[2] or 0)

-- Some things are written or looked at now and then only.
local function is_long_ago(time)
  return NOW - time > 200 or NOW < time
end

-- A server that did not answer for a while gives every running lease its full time again.  Two signs tell of it: it
-- is another run of the server than the last time, or the worker has wanted something for longer than a second while
-- no worker was answered (`quiet`: milliseconds in which it wanted nothing since its last answer; empty: no answer yet).
-- A clock that was set forward looks the same.  One that was set back would make leases longer, so they begin anew too.
local function look_at_gap()
  local run, quiet = ARGV[1], ARGV[2]
  local gone = queue[1] and queue[1] ~= run
  if SEEN > 0 and quiet ~= '' and NOW - SEEN - tonumber(quiet) > GAP then gone = true end
  local set_back = NOW + GAP < SEEN
  if gone or set_back then
    for _, member in ipairs(call('ZRANGE', LEASES, 0, -1)) do
      local lease_end = whole(NOW + tonumber(call('HGET', JOB .. member:sub(1, 32), 'v') or 0))
      call('ZADD', LEASES, set_back and 'CH' or 'GT', lease_end, member)
    end
    queue[3] = whole(NOW + FLOOR)
    call('HSET', Q, 'keep', queue[3])
  end
  if is_long_ago(SEEN) or queue[1] ~= run then call('HSET', Q, 'run', run, 'seen', NOW) end
end

-- The first time in a set of times; nil where it is empty.
local function first_of(set)
  return tonumber(call('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
end

local function promote()
  for _, id in ipairs(call('ZRANGEBYSCORE', DUE, '-inf', NOW, 'LIMIT', 0, PROMOTE_BATCH)) do
    local m = call('HGET', JOB .. id, 'm')
    call('ZREM', DUE, id)
    if m then  -- else somebody has deleted keys by hand; the rest has to go on
      local score = next_score(options(m).priority)
      call('ZADD', READY, score, id)
      call('HSET', JOB .. id, 'st', 2, 'p', score)
      call('HDEL', JOB .. id, 'ra')
    end
  end
end

local function return_leases()
  for _, member in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', NOW, 'LIMIT', 0, RETURN_BATCH)) do
    local job = load(member:sub(1, 32))
    if job then cut_off(job, 5, 'the lease ran out') else call('ZREM', LEASES, member) end
  end
end

local function expire()
  for _, id in ipairs(call('ZRANGEBYSCORE', EXPIRING, '-inf', NOW, 'LIMIT', 0, EXPIRE_BATCH)) do
    local job = load(id)
    if job then end_waiting(job, 5, 'expired') else call('ZREM', EXPIRING, id) end
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
  call('ZREM', ENDED, id)
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
    call('DEL', Q .. ':h:' .. id)
  end
  call('DEL', JOB .. id, long(id))
end

-- Where there was more to sweep than one call does, each call goes on with it.
local function sweep(most)
  if not (queue[5] or is_long_ago(tonumber(queue[8] or 0))) or tonumber(queue[3] or 0) > NOW then return end
  local old = call('ZRANGEBYSCORE', ENDED, '-inf', NOW, 'LIMIT', 0, most)
  local sums = {}
  for _, id in ipairs(old) do sweep_job(sums, id) end
  write_sums(sums)
  call('HSET', Q, 'swept', NOW)
  if #old == most then
    call('HSET', Q, 'old', '1')
  elseif queue[5] then
    call('HDEL', Q, 'old')
  end
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
  look_at_gap()
  local due, lease_end = first_of(DUE), first_of(LEASES)
  if due and due <= NOW then
    promote()
    due = first_of(DUE)
  end
  if lease_end and lease_end <= NOW then
    return_leases()
    lease_end, due = first_of(LEASES), first_of(DUE)
  end
  if queue[4] then expire() end
  return due, lease_end
end
