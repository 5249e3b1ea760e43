-- The queue's rules, part 2: a key is held by one job.

-- The id and the fingerprint of the job that holds a key of this task.  A key that looks like an id may be the
-- automatic key of a job.
local function key_holder(task, key)
  local held = call('GET', key_of(task, key))
  if held then
    local state = tonumber(fields(held:sub(1, 32), 'st')[1])
    if state == 5 or state == 6 or state == 7 then return nil end  -- it was spoiled, and nobody could read its key
    return held:sub(1, 32), held:sub(33)
  end
  if #key ~= 32 or not key:match('^[0-9a-f]+$') then return nil end
  local job = fields(key, 'st', 'm')
  local state = tonumber(job[1])
  if not state or state == 5 or state == 6 or state == 7 or state == 8 then return nil end
  local o = head(job[2])
  if o.key or o.task ~= task then return nil end
  return key, o.fingerprint
end

local function hold_key(task, key, id, fingerprint)
  call('SET', key_of(task, key), id .. fingerprint)
  if #key == 32 then call('HSET', Q, 'idkeys', '1') end
end

-- The answer to an add whose key is held by another job; nil where it is not.  `m` and `o`: of the job to be added.
local function held_by_another(id, m, o)
  local plain = o == PLAIN and head(m) or o
  local first, fingerprint = key_holder(plain.task, plain.key or id)
  if first and fingerprint ~= plain.fingerprint then return {2, first, plain.key or id} end
  if first then
    call('HSET', JOB .. id, 'st', 8, 'f', first)
    call('PEXPIRE', JOB .. id, FLOOR)
    count('duplicates', 1)
    return {1, first}
  end
end
