-- switch: stop a queue, or let it go on.  ARGV: pause, resume, close or open.  Answers what it is then, or `unknown`.

if call('HEXISTS', Q, 'added') == 0 then return 'unknown' end
in_spite_of_full_memory()
local verb = ARGV[1]
if verb == 'pause' then
  call('HSET', Q, 'paused', '1')
  return 'paused'
elseif verb == 'resume' then
  call('HDEL', Q, 'paused')
  wake()
  return 'resumed'
elseif verb == 'close' then
  call('HSET', Q, 'closed', '1')
  return 'closed'
end
call('HDEL', Q, 'closed')
return 'open'
