-- show: all that is known of jobs of this queue.  ARGV: ids.  Answers an item each: 0, or {fields, hand-outs, long, kind}
-- where fields are names and values in turn, the hand-outs those before the last one, packed, long the body or the result
-- where that is long, and kind what Redis has at the job's key (`hash`, unless somebody has put something else there).

local function part(empty, ...)
  local found = redis.pcall(...)
  return type(found) == 'table' and found.err and empty or found
end

local answers = {}
for at, id in ipairs(ARGV) do
  local kind, state = call('TYPE', JOB .. id).ok, fields(id, 'st')[1]
  if kind == 'none' or state == '8' then
    answers[at] = 0
  else
    answers[at] = {
      part({}, 'HGETALL', JOB .. id), part({}, 'LRANGE', Q .. ':h:' .. id, 0, -1), part(false, 'GET', long(id)), kind,
    }
  end
end
return answers
