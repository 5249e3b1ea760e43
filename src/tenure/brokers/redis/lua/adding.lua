-- The queue's rules, part 3: a job is stored once.

local function moment(when)
  if when[2] then return math.min(NOW + when[1], LAST_MOMENT) end
  return when[1]
end

-- The answer to an add whose id is known.
local function known(job, state)
  if state == '8' then return {1, call('HGET', job, 'f')} end
  return 1
end

-- Whether there was no such job, and it is begun.  What is no record of a job any more was one when it was added.
local function begin(job)
  local new = redis.pcall('HSETNX', job, 'st', '2')
  if type(new) == 'number' then return new == 1 end
  if new.err:find('WRONGTYPE') then return false end
  return call('HSETNX', job, 'st', '2') == 1
end

local switches = nil

-- Store a job.  Answers 1 (stored, now or before), 2 (it is the queue's first), {1, first id} (its key is held),
-- {2, first id, key} (by a job with other arguments) or {3} (the queue is closed).
local function add(id, m, b, whatever)
  local job = JOB .. id
  local o = options(m)
  if not switches then
    switches = call('HMGET', Q, 'closed', 'idkeys', 'added', 'moved', 'heard')
    begin_places(switches[3], switches[4])
    heard = switches[5]
  end
  if o.key or switches[1] or switches[2] then
    local state = fields(id, 'st')[1]
    if state then return known(job, state) end
    if switches[1] and not whatever then return {3} end
    local answer = keys().held_by_another(id, m, o)
    if answer then return answer end
  end
  if not begin(job) then return known(job, fields(id, 'st')[1]) end
  local score = next_score(o.priority)
  stored = stored + 1
  if #b > SHORT then
    call('HSET', job, 'm', m, 'p', score, 'a', NOW)
    call('SET', long(id), b)
  else
    call('HSET', job, 'm', m, 'b', b, 'p', score, 'a', NOW)
  end
  if o.expires then
    local expires = moment(o.expires)
    call('HSET', job, 'x', expires)
    call('ZADD', EXPIRING, expires, id)
    call('HSET', Q, 'aging', '1')
  end
  local run_at = o.run_at and moment(o.run_at)
  if run_at and run_at > NOW then
    call('HSET', job, 'st', 1, 'ra', run_at)
    call('ZADD', DUE, run_at, id)
    call('HDEL', Q, 'soon')
  else
    call('ZADD', READY, score, id)
  end
  wake()
  if o.key then
    keys().hold_key(o.task, o.key, id, o.fingerprint)
    if #o.key == 32 then switches[2] = '1' end
  end
  return place == 1 and 2 or 1
end
