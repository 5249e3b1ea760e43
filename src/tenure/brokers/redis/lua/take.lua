-- take: hand jobs of one queue out, or repeat what this number was given.
-- ARGV: run, quiet, session, worker, number, limit, visibility timeout, bytes of bodies, `repeat` or empty,
-- how long the worker waits at most.
-- Answers {`closed`} or {`stale`}, or {milliseconds until something is due (-1: nothing is), now, 1 where jobs wait to
-- be handed over, job ...}; a job is id, number, hold, visibility timeout, attempts, losses, expires (or empty), run_at
-- (or empty), m, b.

local session, worker, number, limit = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local take_vt, room, again = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == 'repeat'
local session_key = Q .. ':s:' .. session
local SESSION_TTL = 172800

call('DEL', WAKE)  -- whoever looks has taken the token; it is put back where something is left
local due, lease_end = catch_up()
local answered = call('GET', session_key)
local refused = answered == 'closed' and 'closed' or number < tonumber(answered or 0) and 'stale'
if refused then
  write_counts()
  return {refused}
end

local answer = {0, NOW, queue[7] and 1 or 0}

local function job_line(id, n, hold, vt, f)
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = id, n, hold, vt
  answer[at + 5], answer[at + 6], answer[at + 7] = tonumber(f[4] or 0), tonumber(f[5] or 0), f[6] or ''
  answer[at + 8], answer[at + 9], answer[at + 10] = f[7] or '', f[1], f[2]
end

local function repeat_answer()
  for _, id in ipairs(held_by(session)) do
    local f = call('HMGET', JOB .. id, 'm', 'b', 'n', 'at', 'ls', 'x', 'ra', 'tk', 'v')
    f[2] = f[2] or call('GET', long(id))
    if tonumber(f[8]) == number then
      local left = tonumber(call('ZSCORE', LEASES, id .. session)) - NOW
      job_line(id, tonumber(f[3]), math.max(0, left), tonumber(f[9]), f)
    end
  end
end

local HANDOUT = {'n', 's', 'w', 'tk', 'v', 'hb', 'he', 'ho', 'l', 'ca', 'er'}
local LATE_BATCH = 1000

-- The next jobs of the line that may still start, as far as their bodies have room: {id, fields} each.
local function next_jobs()
  local chosen, late = {}, 0
  repeat
    local ids = call('ZRANGE', READY, #chosen, limit - 1)
    local late_before = late
    for _, id in ipairs(ids) do
      if room <= 0 then return chosen end
      local f = call('HMGET', JOB .. id, 'm', 'b', 'n', 'at', 'ls', 'x', 'ra')
      if not f[1] then  -- somebody has deleted keys by hand; the rest has to go on
        call('ZREM', READY, id)
        late = late + 1
      elseif f[6] and tonumber(f[6]) <= NOW then
        end_waiting(load(id), 5, 'expired')
        late = late + 1
      else
        f[2] = f[2] or call('GET', long(id)) or ''
        chosen[#chosen + 1] = {id, f}
        room = room - #f[2]
      end
    end
  until late == late_before or late >= LATE_BATCH
  return chosen
end

local function hand_out(granted)
  local ready, leases = {}, {}
  for at, grant in ipairs(granted) do ready[at] = grant[1] end
  call('ZREM', READY, unpack(ready))
  for _, grant in ipairs(granted) do
    local id, f = grant[1], grant[2]
    local job, n, vt = JOB .. id, tonumber(f[3] or 0), options(f[1]).vt or take_vt
    if n > 0 then
      local last = {}
      for at, value in ipairs(call('HMGET', job, unpack(HANDOUT))) do last[HANDOUT[at]] = value end
      keep_handout(id, last)
      call('HDEL', job, 'he', 'ho', 'l', 'ca', 'er')
    end
    if f[6] then call('ZREM', EXPIRING, id) end
    call('HSET', job, 'st', 3, 'n', n + 1, 's', session, 'w', worker, 'tk', number, 'v', vt, 'hb', NOW)
    leases[#leases + 1] = whole(NOW + vt)
    leases[#leases + 1] = id .. session
    job_line(id, n + 1, vt, vt, f)
  end
  call('ZADD', LEASES, unpack(leases))
  count('handed_out', #granted)
  count_worker(worker, 'handed_out', #granted)
  count_worker(worker, 'running', #granted)
end

if number == tonumber(answered) then
  repeat_answer()
else
  sweep(SWEEP_BATCH + 2 * limit)
  local granted = (queue[6] or limit == 0) and {} or next_jobs()
  if #granted > 0 then
    hand_out(granted)
    call('ZREM', IDLE, session)
  else
    call('ZADD', IDLE, whole(NOW + tonumber(ARGV[10]) + 2000), session)
  end
  if #granted > 0 or again then call('SET', session_key, number, 'EX', SESSION_TTL) end
  if not queue[6] and (#granted > 0 or limit == 0 or room <= 0) and call('ZCARD', READY) > 0 then wake() end
end
local next_due = math.min(due or LAST_MOMENT, lease_end or LAST_MOMENT)
answer[1] = next_due < LAST_MOMENT and math.max(0, next_due - NOW) or -1
write_counts()
return answer
