-- add: store jobs of one queue.  ARGV: id, m, b of each.  Answers one word a job; see `add` in adding.lua.

local answers = {}
for at = 1, #ARGV, 3 do
  answers[#answers + 1] = add(ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
write_counts()
return answers
