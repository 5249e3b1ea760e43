-- bye: close a session in one queue, and give back all that it holds there.  ARGV: session, how (4 left, 6 lost),
-- cause; for each receipt: id, number.  Answers two numbers each: how it had ended (0: not known here), and 1 where a
-- settlement of it was refused.

local session, how, cause = ARGV[1], tonumber(ARGV[2]), ARGV[3]
in_spite_of_full_memory()
call('SET', Q .. ':s:' .. session, 'closed', 'EX', 172800)
call('ZREM', IDLE, session)
for _, id in ipairs(held_by(session)) do guarded(cut_off, id, how, cause) end
local answers = {}
for at = 4, #ARGV, 2 do
  local known, handout = pcall(ended, load(ARGV[at]), tonumber(ARGV[at + 1]))
  handout = known and handout
  answers[#answers + 1] = handout and handout.how or 0
  answers[#answers + 1] = handout and handout.late and 1 or 0
end
write_counts()
return answers
