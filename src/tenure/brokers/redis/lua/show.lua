-- show: all that is known of jobs of this queue.  ARGV: ids.  Answers an item each: 0, or {fields, hand-outs, long, hash}
-- where fields are names and values in turn, the hand-outs those before the last one, packed, long the body or the result
-- where that is long, and hash 0 where somebody has put something else at the job's key.

local function part(empty, ...)
  local found = redis.pcall(...)
  return type(found) == 'table' and found.err and empty or found
end

local answers = {}
for at, id in ipairs(ARGV) do
  local size, state = part(-1, 'HLEN', JOB .. id), fields(id, 'st')[1]
  if size == 0 or state == '8' then
    answers[at] = 0
  else
    answers[at] = {
      part({}, 'HGETALL', JOB .. id), part({}, 'LRANGE', Q .. ':h:' .. id, 0, -1), part(false, 'GET', long(id)),
      size > 0 and 1 or 0,
    }
  end
end
return answers
