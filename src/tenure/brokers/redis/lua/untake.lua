-- untake: give back what a session's take was given in one queue and its process has not read; the number grants
-- nothing any more.  ARGV: session, number, cause, ID:NUMBER of what is held all the same ...

local session, number, cause = ARGV[1], tonumber(ARGV[2]), ARGV[3]
in_spite_of_full_memory()
local answered = call('GET', Q .. ':s:' .. session)
if answered == 'closed' then return 0 end
if number > tonumber(answered or 0) then call('SET', Q .. ':s:' .. session, number, 'EX', 172800) end
local held = {}
for at = 4, #ARGV do held[ARGV[at]] = true end
local given_back = 0

local function give_back(id)
  local take = tonumber(call('HGET', JOB .. id, 'tk'))
  if take == number and not held[id .. ':' .. loaded(id).number] then
    cut_off(id, 4, cause)
    given_back = given_back + 1
  end
end

for _, id in ipairs(held_by(session)) do guarded(give_back, id) end
write_counts()
return given_back
