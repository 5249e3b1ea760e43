-- take: hand jobs of one queue out, or repeat what this number was given.
-- ARGV: run, quiet, session, worker, number, limit, visibility timeout, bytes of bodies, `repeat` or `woken` (the worker
-- has just taken the token) or empty, how long the worker waits at most, 1 where it listens on the channel meanwhile.
-- Answers {`closed`} or {`stale`}, or {milliseconds until something is due (-1: nothing is), now, 1 where jobs wait to
-- be handed over, job ...}; a job is id, number, hold, visibility timeout, attempts, losses, expires (or empty), run_at
-- (or empty), m, b.

local session, worker, number, limit = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local take_vt, room, again, woken = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == 'repeat', ARGV[9] == 'woken'
local session_key = Q .. ':s:' .. session
local SESSION_TTL = 172800
local SWEEP_BATCH = 100

-- Whoever looks has taken the token; it is put back where something is left.  This write is allowed in a full memory,
-- and allows those that follow; so does ZPOPMIN, which is the first one of nearly every look that was woken.
local behind = GONE or not SOON or SOON <= NOW or queue[4]
if not woken or behind or TO_NOTE or queue[6] then call('DEL', WAKE) end
if ARGV[11] == '1' and not heard then
  call('HSET', Q, 'heard', '1')
  heard = '1'
end
if behind then rules().catch_up() else note_run() end
local answered = call('GET', session_key)
local refused = answered == 'closed' and 'closed' or number < tonumber(answered or 0) and 'stale'
if refused then
  write_counts()
  return {refused}
end

local answer = {0, NOW, queue[7] and 1 or 0}

local function whole(value)
  local n = value + 0
  if n % 1 ~= 0 then error(value .. ' is no whole number') end
  return n
end

-- What a hand-out tells of a job: m, b, n, at, ls, x, ra.  It is an error where that is no job's record, so whatever can
-- be wrong with one is found before anything is written.
local function read(id)
  local f = call('HMGET', JOB .. id, 'm', 'b', 'n', 'at', 'ls', 'x', 'ra')
  if not f[1] then error('it has no message') end
  f[2] = f[2] or call('GET', long(id)) or ''
  f[3], f[4], f[5] = whole(f[3] or 0), whole(f[4] or 0), whole(f[5] or 0)
  f[6], f[7] = f[6] and whole(f[6]), f[7] and whole(f[7])
  return f
end

local function job_line(id, n, hold, vt, f)
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = id, n, hold, vt
  answer[at + 5], answer[at + 6], answer[at + 7] = f[4], f[5], f[6] or ''
  answer[at + 8], answer[at + 9], answer[at + 10] = f[7] or '', f[1], f[2]
end

local function repeat_one(id)
  local f, given = read(id), call('HMGET', JOB .. id, 'tk', 'v')
  if tonumber(given[1]) == number then
    local left = tonumber(call('ZSCORE', LEASES, id .. session)) - NOW
    job_line(id, f[3], math.max(0, left), whole(given[2]), f)
  end
end

local function repeat_answer()
  for _, id in ipairs(rules().held_by(session)) do rules().guarded(repeat_one, id) end
end

local LATE_BATCH = 1000

-- The next jobs of the line that may still start, as far as their bodies have room: {id, fields} each, and whether there
-- may be more.
local function next_jobs()
  local chosen, late, late_before = {}, 0, 0
  repeat
    late_before = late
    local ids = call('ZPOPMIN', READY, limit - #chosen)
    for at = 1, #ids, 2 do
      local id = ids[at]
      if room <= 0 then
        for rest = at, #ids, 2 do call('ZADD', READY, ids[rest + 1], ids[rest]) end
        return chosen, true
      end
      local sound, f = pcall(read, id)
      if not sound then
        rules().bury(id, f)
        late = late + 1
      elseif f[6] and f[6] <= NOW then
        rules().guarded(rules().end_waiting, id, 5, 'expired')
        late = late + 1
      else
        chosen[#chosen + 1] = {id, f}
        room = room - #f[2]
      end
    end
  until late == late_before or late >= LATE_BATCH
  return chosen, #chosen == limit or late > late_before
end

local leases, first_end = {}, SOON

local function hand_one_out(id, f)
  local n, vt = f[3], options(f[1]).vt or take_vt
  if n > 0 then rules().keep_handout(id) end
  if f[6] then call('ZREM', EXPIRING, id) end
  call('HSET', JOB .. id, 'st', '3', 'n', n + 1, 's', session, 'w', worker, 'tk', number, 'v', vt, 'hb', NOW)
  first_end = math.min(first_end, NOW + vt)
  leases[#leases + 1] = NOW + vt
  leases[#leases + 1] = id .. session
  job_line(id, n + 1, vt, vt, f)
end

local function hand_out(granted)
  for _, grant in ipairs(granted) do
    if grant[2][3] == 0 then
      hand_one_out(grant[1], grant[2])
    else  -- what is kept of earlier hand-outs may be spoiled as well
      rules().guarded(hand_one_out, grant[1], grant[2])
    end
  end
  if #leases == 0 then return end
  call('ZADD', LEASES, unpack(leases))
  if first_end < SOON then call('HSET', Q, 'soon', first_end) end
end

if number == tonumber(answered) then
  repeat_answer()
else
  local granted, left = {}, limit == 0
  if not queue[6] and limit > 0 then granted, left = next_jobs() end
  if #granted > 0 then hand_out(granted) end
  if #granted == 0 then
    call('ZADD', IDLE, NOW + tonumber(ARGV[10]) + 2000, session)
  elseif #granted == limit then  -- else it has room for more, and looks again at once
    call('ZREM', IDLE, session)
  end
  if #granted > 0 or again then call('SET', session_key, number, 'EX', SESSION_TTL) end
  if (queue[5] or is_long_ago(tonumber(queue[8] or 0))) and tonumber(queue[3] or 0) <= NOW then
    rules().sweep(SWEEP_BATCH + 2 * limit)
  end
  if left and not queue[6] and call('ZCARD', READY) > 0 then wake() end
end
answer[1] = SOON < LAST_MOMENT and math.max(0, SOON - NOW) or -1
write_counts()
return answer
