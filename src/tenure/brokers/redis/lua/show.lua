-- show: all that is known of jobs of this queue.  ARGV: ids.  Answers an item each: 0, or {fields, hand-outs, long} where
-- fields are names and values in turn, the hand-outs those before the last one, packed, and long the body or the result
-- where that is long.

local answers = {}
for at, id in ipairs(ARGV) do
  local state = call('HGET', JOB .. id, 'st')
  if not state or state == '8' then
    answers[at] = 0
  else
    answers[at] = {call('HGETALL', JOB .. id), call('LRANGE', Q .. ':h:' .. id, 0, -1), call('GET', long(id))}
  end
end
return answers
