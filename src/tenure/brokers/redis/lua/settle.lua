-- settle: hand-outs of one queue end by the worker's word.
-- ARGV: session of the line, `as` or empty (then only its own hand-outs), how long ended jobs and their keys stay;
-- for each: verb, id, number, delay, reason, flag, body, how many adds, and for each of those the
-- queue (empty: this one) and what `add` is told.
-- flag: of `done` 1 where the body is the result, of `dead` 0 where the task did not run.
-- Answers one item each: a word (`+STATE` taken, `-HOW` refused, `lost`, `gone`, `closed`), or {word, answers to the
-- adds ...}; an add for another queue is answered 0: it waits in Q:out to be handed over.

local session, mine_only = ARGV[1], ARGV[2] == 'as'
local keep, window = tonumber(ARGV[3]), tonumber(ARGV[4])

local REPEATED = {
  done = {[1] = 'done'}, retry = {[2] = 'scheduled', [7] = 'dead', [8] = 'cancelled'},
  release = {[3] = 'released', [8] = 'cancelled'}, dead = {[7] = 'dead'}, cancel = {[8] = 'cancelled'},
}

local function settle_now(job, s)
  if s.verb == 'done' then
    end_done(job, s.flag == '1' and s.body or nil, keep, window)
    return 'done'
  elseif s.verb == 'dead' then
    job.not_run = s.flag == '0'
    end_dead(job, 7, s.reason, s.reason, s.body)
    return 'dead'
  elseif s.verb == 'cancel' then
    end_cancelled(job, 8, s.reason, '', keep)
    return 'cancelled'
  elseif job.cancel then
    end_cancelled(job, 8, 'cancelled while it ran', s.body, keep)
    return 'cancelled'
  elseif s.verb == 'release' then
    if s.delay > 0 then end_scheduled(job, 3, s.delay, s.reason, '') else end_ready(job, 3, s.reason) end
    return 'released'
  end
  local most = options(job.m).max_attempts
  if job.attempts + 1 >= most then
    end_dead(job, 7, 'gave up after ' .. most .. ' attempts: ' .. s.reason, s.reason, s.body)
    return 'dead'
  end
  end_scheduled(job, 2, s.delay, s.reason, s.body)
  return 'scheduled'
end

-- The hand-out runs no more: a repeat gets its first answer, anything else is refused, and counted once.
local function settled_before(job, s)
  local handout = ended(job, s.number)
  if not handout then return 'gone' end
  local mine = not mine_only or handout.session == session
  local word = mine and REPEATED[s.verb][handout.how]
  if word then return '+' .. word end
  if s.verb == 'release' then return 'lost' end
  if not handout.late then mark_late(job, handout) end
  return '-' .. HOW[handout.how]
end

local function add_with_it(queue, id, m, b)
  if queue == '' then return add(id, m, b, true) end
  call('HSET', OUT, id, cmsgpack.pack({queue, id, m, b}))
  call('HSET', Q, 'out', '1')
  return 0
end

local function settle(id, s)
  local job = load(id)
  if job and job.state == 3 and job.number == s.number and (not mine_only or job.session == session) then
    return '+' .. settle_now(job, s)
  end
  return settled_before(job, s)
end

in_spite_of_full_memory()
local closed = call('GET', Q .. ':s:' .. session) == 'closed'
local answers, at = {}, 5
while ARGV[at] do
  local s = {
    verb = ARGV[at], id = ARGV[at + 1], number = tonumber(ARGV[at + 2]), delay = tonumber(ARGV[at + 3]),
    reason = ARGV[at + 4], flag = ARGV[at + 5], body = ARGV[at + 6],
  }
  local adds = tonumber(ARGV[at + 7])
  at = at + 8
  local word = closed and 'closed' or guarded(settle, s.id, s) or 'gone'
  if adds > 0 then
    local taken = word:byte(1) == 43
    word = {word}
    for n = 0, adds - 1 do
      local first = at + 4 * n
      if taken then word[n + 2] = add_with_it(ARGV[first], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]) end
    end
    at = at + 4 * adds
  end
  answers[#answers + 1] = word
end
write_counts()
return answers
