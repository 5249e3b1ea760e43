-- The queue's rules, part 2: a job is stored once, and a key is held by one job.

local function moment(when)
  if not when then return nil end
  if when[2] then return math.min(NOW + when[1], LAST_MOMENT) end
  return when[1]
end

-- The id and the fingerprint of the job that holds a key of this task.  A key that looks like an id may be the
-- automatic key of a job.
local function key_holder(task, key)
  local held = call('GET', key_of(task, key))
  if held then return held:sub(1, 32), held:sub(33) end
  if #key ~= 32 or not key:match('^[0-9a-f]+$') then return nil end
  local job = call('HMGET', JOB .. key, 'st', 'm')
  local state = tonumber(job[1])
  if not state or state == 5 or state == 6 or state == 7 or state == 8 then return nil end
  local o = cmsgpack.unpack(job[2]:sub(2))
  if o[3] or o[1] ~= task then return nil end
  return key, o[2]
end

local function hold_key(task, key, id, fingerprint)
  call('SET', key_of(task, key), id .. fingerprint)
  if #key == 32 then call('HSET', Q, 'idkeys', '1') end
end

-- The answer to an add whose id is known.
local function known(job, state)
  if state == '8' then return {1, call('HGET', job, 'f')} end
  return 1
end

local switches = nil

-- Store a job.  Answers 1 (stored, now or before), 2 (it is the queue's first), {1, first id} (its key is held),
-- {2, first id, key} (by a job with other arguments) or {3} (the queue is closed).
local function add(id, m, b, whatever)
  local job = JOB .. id
  local o = options(m)
  switches = switches or call('HMGET', Q, 'closed', 'idkeys')
  if o.key or switches[1] or switches[2] then
    local state = call('HGET', job, 'st')
    if state then return known(job, state) end
    if switches[1] and not whatever then return {3} end
    local plain = o
    if o == PLAIN then
      plain = cmsgpack.unpack(m:sub(2))
      plain = {task = plain[1], fingerprint = plain[2]}
    end
    local first, fingerprint = key_holder(plain.task, plain.key or id)
    if first and fingerprint ~= plain.fingerprint then return {2, first, plain.key or id} end
    if first then
      call('HSET', job, 'st', 8, 'f', first)
      call('PEXPIRE', job, FLOOR)
      count('duplicates', 1)
      return {1, first}
    end
  end
  if call('HSETNX', job, 'st', 2) == 0 then return known(job, call('HGET', job, 'st')) end
  local score = next_score(o.priority)
  local added = call('HINCRBY', Q, 'added', 1)
  local run_at, expires = moment(o.run_at), moment(o.expires)
  if #b > SHORT then
    call('HSET', job, 'm', m, 'p', score, 'a', NOW)
    call('SET', long(id), b)
  else
    call('HSET', job, 'm', m, 'b', b, 'p', score, 'a', NOW)
  end
  if expires then
    call('HSET', job, 'x', whole(expires))
    call('ZADD', EXPIRING, whole(expires), id)
    call('HSET', Q, 'aging', '1')
  end
  if run_at and run_at > NOW then
    call('HSET', job, 'st', 1, 'ra', whole(run_at))
    call('ZADD', DUE, whole(run_at), id)
    wake()
  else
    call('ZADD', READY, score, id)
    wake()
  end
  if o.key then
    hold_key(o.task, o.key, id, o.fingerprint)
    if #o.key == 32 then switches[2] = '1' end
  end
  return added == 1 and 2 or 1
end
