-- states: what is known of jobs of this queue.  ARGV: run, quiet, a channel on which their ends are to be told (or empty), ids.
-- Answers an item each: 0 (no such job here), or {state, attempts, losses, reason, kind, body}; kind is none, result,
-- failure, progress, or later (there was no room for the body).  Jobs that are over are not told again.

local NAMES = {'scheduled', 'ready', 'running', 'done', 'dead', 'cancelled', 'dead'}
local room = 4194304

-- The failure of the last hand-out that had one.
local function failure_of(id, number, error)
  if error and error ~= '' then return error end
  if number < 2 then return '' end
  for _, packed in ipairs(call('LRANGE', Q .. ':h:' .. id, -20, -1)) do
    local h = cmsgpack.unpack(packed)
    if h[11] ~= '' then error = h[11] end
  end
  return error or ''
end

local function body_of(id, f)
  local state = f[1]
  if state == '4' then
    local result = f[8] or call('GET', long(id))
    return result and 'result' or 'none', result or ''
  end
  if state == '3' then return f[9] and 'progress' or 'none', f[9] or '' end
  local failure = failure_of(id, tonumber(f[6] or 0), f[7])
  return failure ~= '' and 'failure' or 'none', failure
end

local function wait_for_end(id, channel, waiters)
  local word = channel .. ' '
  if not waiters or not waiters:find(word, 1, true) then call('HSET', JOB .. id, 'wt', (waiters or '') .. word) end
end

local function state_of(id, channel)
  local f = fields(id, 'st', 'at', 'ls', 'y', 'e', 'n', 'er', 'r', 'pg', 'ttl', 'wt', 'f')
  if not f[1] then return 0 end
  if f[1] == '8' then return state_of(f[12], channel) end
  local name, reason = NAMES[tonumber(f[1])], f[4] or ''
  if not name then return 0 end
  if f[1] == '4' and tonumber(f[5]) + tonumber(f[10]) <= NOW then return {'expired', 0, 0, '', 'none', ''} end
  if f[1] == '7' then
    reason = 'purged from the dead list' .. (reason ~= '' and ': ' .. reason or '')
  end
  if channel ~= '' and tonumber(f[1]) <= 3 then wait_for_end(id, channel, f[11]) end
  local kind, body = body_of(id, f)
  if body ~= '' and room <= 0 then kind, body = 'later', '' end
  room = room - #body
  return {name, tonumber(f[2]) or 0, tonumber(f[3]) or 0, reason, kind, body}
end

in_spite_of_full_memory()
catch_up()
local answers = {}
for at = 4, #ARGV do
  local read, state = pcall(state_of, ARGV[at], ARGV[3])
  answers[at - 3] = read and state or 0  -- nothing can be said of a job whose record is spoiled
end
write_counts()
return answers
