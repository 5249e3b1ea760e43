-- extend: hold hand-outs of one queue longer.  ARGV: run, quiet; for each: id, number, 1 where there is a progress
-- note, that note.  Answers two numbers each: milliseconds that are left (-1: lost, -2: no such job here) and the
-- cancel mark.

in_spite_of_full_memory()
look_at_gap()
local answers = {}
for at = 3, #ARGV, 4 do
  local id, number = ARGV[at], ARGV[at + 1]
  local f = fields(id, 'st', 'n', 's', 'v', 'c')
  local hold, mark = -2, 0
  if f[1] == '3' and f[2] == number and f[3] and tonumber(f[4]) then
    local member = id .. f[3]
    call('ZADD', LEASES, 'GT', NOW + tonumber(f[4]), member)
    hold = tonumber(call('ZSCORE', LEASES, member)) - NOW
    mark = tonumber(f[5]) or 0
    if ARGV[at + 2] == '1' then call('HSET', JOB .. id, 'pg', ARGV[at + 3]) end
  elseif f[1] then
    hold = -1
  end
  answers[#answers + 1] = hold
  answers[#answers + 1] = mark
end
return answers
