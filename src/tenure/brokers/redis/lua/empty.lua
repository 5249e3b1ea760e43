-- empty: call off a part of what waits in a queue.  ARGV: how many at most, how long they stay.  Answers how many it
-- were, or -1 where there is no such queue.

if call('HEXISTS', Q, 'added') == 0 then return -1 end
in_spite_of_full_memory()
local most, cancelled = tonumber(ARGV[1]), 0
for _, set in ipairs({READY, DUE}) do
  if cancelled < most then
    for _, id in ipairs(call('ZRANGE', set, 0, most - cancelled - 1)) do
      guarded(end_waiting, id, 6, 'purged from its queue', tonumber(ARGV[2]))
      cancelled = cancelled + 1
    end
  end
end
write_counts()
return cancelled
