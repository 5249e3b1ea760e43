-- outgoing: what waits here to be handed over to other queues.  ARGV: ids that are there by now.  Answers {queue, id,
-- m, b} of some of the others.

if #ARGV > 0 then call('HDEL', OUT, unpack(ARGV)) end
local answers, room = {}, 1048576
for _, id in ipairs(call('HKEYS', OUT)) do
  local packed = call('HGET', OUT, id)
  room = room - #packed
  answers[#answers + 1] = cmsgpack.unpack(packed)
  if room <= 0 or #answers == 100 then break end
end
if #answers == 0 then call('HDEL', Q, 'out') end
return answers
