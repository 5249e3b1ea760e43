-- where: which of these jobs are in this queue.  ARGV: ids.  Answers the places of those in ARGV.

local answers = {}
for at, id in ipairs(ARGV) do
  if call('EXISTS', JOB .. id) == 1 then answers[#answers + 1] = at end
end
return answers
