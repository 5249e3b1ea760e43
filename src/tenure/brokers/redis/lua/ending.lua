-- The queue's rules, part 4: how a hand-out ends, and a job with it.

-- A job as its end has to know it.
local function load(id)
  local f = fields(id, 'st', 'n', 's', 'w', 'at', 'ls', 'c', 'm', 'wt', 'p', 'x')
  local state = tonumber(f[1])
  if not state then return nil end
  return {
    id = id, key = JOB .. id, state = state, number = tonumber(f[2]) or 0, session = f[3] or '', worker = f[4] or '',
    attempts = tonumber(f[5]) or 0, losses = tonumber(f[6]) or 0, cancel = f[7], m = f[8], waiters = f[9],
    place = f[10], expires = f[11],
  }
end

-- A job of the dead list; nil and the answer where it is none.
local function load_dead(id)
  local job = load(id)
  if not job or job.state == 8 then return nil, 'unknown' end
  if job.state ~= 5 then
    local states = {'scheduled', 'ready', 'running', 'done', 'dead', 'cancelled', 'purged'}
    return nil, states[job.state] and 'already ' .. states[job.state] or 'unknown'
  end
  return job
end

local function free_key(o)
  if o.key then call('DEL', key_of(o.task, o.key)) end
end

-- Whoever waits for the end of this job is told.
local function tell(id, channels)
  if channels then
    for channel in channels:gmatch('%S+') do call('PUBLISH', channel, id) end
    call('HDEL', JOB .. id, 'wt')
  end
end

-- A job whose record cannot be read, for that reason or since there is none, is put where an operator sees it and where
-- it is in nobody's way: on the dead list.
local function bury(id, why)
  for _, set in ipairs({READY, DUE, EXPIRING}) do call('ZREM', set, id) end
  for _, member in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    if member:sub(1, 32) == id then call('ZREM', LEASES, member) end
  end
  if call('ZSCORE', ENDED, id) then return end
  local key = JOB .. id
  local size = redis.pcall('HLEN', key)
  if size == 0 then
    why = 'it was gone'
  elseif type(size) == 'table' then
    call('DEL', key)
    why = 'it was no hash'
  end
  local f = call('HMGET', key, 'n', 'ho', 'w', 'wt')
  if (tonumber(f[1]) or 0) > 0 and not f[2] then
    call('HSET', key, 'ho', 6, 'he', NOW)
    count_worker(f[3] or '', '/lost', 1)
  end
  call('HDEL', key, 'ra', 'x')
  why = type(why) == 'table' and why.err or tostring(why)
  call('HSET', key, 'st', 5, 'e', NOW, 'y', 'its record could not be read: ' .. why)
  call('ZADD', DEAD, 0, id)
  tell(id, f[4])
end

-- Do something with a job; one that it fails with is buried, and stops nothing else.
local function guarded(act, id, ...)
  local done, answer = pcall(act, id, ...)
  if done then return answer end
  bury(id, answer)
end

local function loaded(id)
  return load(id) or error('it has no state')
end

local function keep_until(keep)
  return NOW + math.max(keep, FLOOR)
end

-- The hand-out ends so: its lease is gone, and it is counted.  `...` are further fields of the job.
local function end_handout(job, how, state, ...)
  call('ZREM', LEASES, job.id .. job.session)
  call('HDEL', job.key, 'pg')
  call('HSET', job.key, 'st', state, 'ho', how, 'he', NOW, ...)
  if how == 1 or how == 2 or how == 7 or how == 8 then
    if not job.not_run then call('HSET', job.key, 'at', job.attempts + 1) end
  elseif how == 5 or how == 6 then
    call('HSET', job.key, 'ls', job.losses + 1)
  end
  count_worker(job.worker, '/' .. HOW[how], 1)
end

-- A job that is over: done, dead or cancelled.
local function over(job, state, keep)
  if state == 5 then
    call('ZADD', DEAD, 0, job.id)
  else
    call('ZADD', ENDED, keep_until(keep), job.id)
    if state == 6 then  -- it never runs again, so nothing needs its body
      call('HDEL', job.key, 'b')
      call('DEL', long(job.id))
    end
    count(state == 4 and 'done' or 'cancelled', 1)
  end
  tell(job.id, job.waiters)
end

-- `result`: the packed result, or nil.  `keep` and `window`: how long the job and its key stay.
local function end_done(job, result, keep, window)
  call('ZREM', LEASES, job.id .. job.session)
  call('HDEL', job.key, 'b', 'pg')
  if result and #result > SHORT then
    call('SET', long(job.id), result)
    result = nil
  else
    call('DEL', long(job.id))
  end
  if result then
    call('HSET', job.key, 'st', 4, 'ho', 1, 'he', NOW, 'e', NOW, 'at', job.attempts + 1, 'ttl', keep, 'r', result)
  else
    call('HSET', job.key, 'st', 4, 'ho', 1, 'he', NOW, 'e', NOW, 'at', job.attempts + 1, 'ttl', keep)
  end
  count_worker(job.worker, '/done', 1)
  local o = options(job.m)
  if o.key and window > 0 then
    call('PEXPIRE', key_of(o.task, o.key), window)
  else
    free_key(o)
  end
  over(job, 4, keep)
end

local function end_dead(job, how, reason, cause, failure)
  end_handout(job, how, 5, 'e', NOW, 'y', reason, 'ca', cause, 'er', failure)
  free_key(options(job.m))
  over(job, 5)
end

local function end_cancelled(job, how, reason, failure, keep)
  end_handout(job, how, 6, 'e', NOW, 'y', reason, 'ca', reason, 'er', failure)
  free_key(options(job.m))
  over(job, 6, keep)
end

local function wait_for(job, state, set, score)
  call('ZADD', set, score, job.id)
  if job.expires then call('ZADD', EXPIRING, job.expires, job.id) end
  wake()
end

local function end_scheduled(job, how, delay, cause, failure)
  local run_at = math.min(NOW + delay, LAST_MOMENT)
  end_handout(job, how, 1, 'ra', run_at, 'ca', cause, 'er', failure)
  call('HDEL', Q, 'soon')
  wait_for(job, 1, DUE, run_at)
end

local function end_ready(job, how, cause)
  end_handout(job, how, 2, 'ca', cause)
  wait_for(job, 2, READY, job.place)
end

-- The hand-out ended without the worker's word: given back, or dead at the last loss, or cancelled.
local function cut_off(id, how, cause)
  local job = loaded(id)
  if job.cancel then
    end_cancelled(job, how, 'cancelled while it ran', '', tonumber(fields(id, 'ttl')[1]) or 0)
  elseif how ~= 4 and job.losses + 1 >= options(job.m).max_losses then
    end_dead(job, how, 'worker lost (' .. cause .. ')', cause, '')
  else
    end_ready(job, how, cause)
  end
end

-- A job that waits is over: dead (expired) or cancelled.
local function end_waiting(id, state, reason, keep)
  local job = loaded(id)
  call('ZREM', READY, job.id)
  call('ZREM', DUE, job.id)
  call('ZREM', EXPIRING, job.id)
  call('HDEL', job.key, 'ra')
  call('HSET', job.key, 'st', state, 'e', NOW, 'y', reason)
  if state == 5 then
    call('HSET', job.key, 'xp', 1)
    count('expired', 1)
  end
  free_key(options(job.m))
  over(job, state, keep)
end

-- How a hand-out that has ended did so: how, late, worker, session, and where in Q:h:ID it is (nil: in the job).
local function ended(job, number)
  if not job or job.state == 8 or number < 1 or number > job.number then return nil end
  if number == job.number then
    local f = call('HMGET', job.key, 'ho', 'l')
    if not f[1] then return nil end
    return {how = tonumber(f[1]), late = f[2], worker = job.worker, session = job.session}
  end
  local history = Q .. ':h:' .. job.id
  local oldest = call('LINDEX', history, 0)
  if not oldest then return nil end
  local at = number - cmsgpack.unpack(oldest)[1]
  local packed = at >= 0 and call('LINDEX', history, at)
  if not packed then return nil end
  local h = cmsgpack.unpack(packed)
  return {how = h[8], late = h[9] == 1, worker = h[3], session = h[2], at = at, packed = h}
end

local function mark_late(job, handout)
  if handout.at then
    handout.packed[9] = 1
    call('LSET', Q .. ':h:' .. job.id, handout.at, cmsgpack.pack(handout.packed))
  else
    call('HSET', job.key, 'l', 1)
  end
  count('refused', 1)
  count_worker(handout.worker, 'refused', 1)
end

-- The jobs that a session holds: {id, ...}.  One whose keys somebody has deleted is not among them.
local function held_by(session)
  local ids = {}
  for _, member in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    local id = member:sub(1, 32)
    if member:sub(33) == session and call('EXISTS', JOB .. id) == 1 then ids[#ids + 1] = id end
  end
  return ids
end
