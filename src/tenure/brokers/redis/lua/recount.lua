-- recount: count some of the jobs, and hold each against itself.  ARGV: which set (1 ready, 2 due, 3 leases, 4 dead,
-- 5 ended), where in it to begin, how many.  Answers {how many there were, counts, what is wrong}; the counts names and
-- values in turn.  The first part of the first set has what a sweep took away as well.

local SETS = {
  {READY, {['2'] = 'ready'}}, {DUE, {['1'] = 'scheduled'}}, {LEASES, {['3'] = 'running'}}, {DEAD, {['5'] = 'dead'}},
  {ENDED, {['4'] = 'done', ['6'] = 'cancelled', ['7'] = 'purged'}},
}
local counted, wrong = {}, {}

local function found(name, n)
  counted[name] = (counted[name] or 0) + n
end

local function accuse(id, what)
  if #wrong < 20 then wrong[#wrong + 1] = 'job ' .. id .. ': ' .. what end
end

local function recount_handout(h, running)
  local worker = ':' .. h[3]
  found('handed_out', 1)
  found('handed_out' .. worker, 1)
  if running then
    found('running' .. worker, 1)
  else
    local how = '/' .. HOW[h[8]]
    found(how, 1)
    found(how .. worker, 1)
  end
  if h[9] == 1 then
    found('refused', 1)
    found('refused' .. worker, 1)
  end
end

local function recount_job(id, f, states)
  local name = states[f[1]]
  if not name then
    return accuse(id, 'it is where no job of state ' .. tostring(f[1]) .. ' can be')
  end
  found('added', 1)
  found(name, 1)
  if name == 'dead' and f[6] then found('expired', 1) end
  local number = tonumber(f[2]) or 0
  if (name == 'running') ~= (number > 0 and not f[4]) then
    return accuse(id, 'its hand-out and its state contradict')
  end
  if number > 0 then
    recount_handout({number, '', f[3] or '', 0, 0, 0, 0, tonumber(f[4]), f[5] and 1 or 0}, name == 'running')
  end
  if number < 2 then return end
  local history = call('LRANGE', Q .. ':h:' .. id, 0, -1)
  for _, packed in ipairs(history) do recount_handout(cmsgpack.unpack(packed), false) end
  if #history < math.min(number - 1, KEPT) then accuse(id, 'earlier hand-outs are missing') end
end

local set, first = SETS[tonumber(ARGV[1])], tonumber(ARGV[2])
local members = call('ZRANGE', set[1], first, first + tonumber(ARGV[3]) - 1)
for _, member in ipairs(members) do
  local id = member:sub(1, 32)
  local f = fields(id, 'st', 'n', 'w', 'ho', 'l', 'xp')
  if not pcall(recount_job, id, f, set[2]) then accuse(id, 'its record cannot be read') end
end
if ARGV[1] == '1' and first == 0 then
  local swept = call('HGETALL', Q .. ':swept')
  for at = 1, #swept, 2 do found(swept[at], tonumber(swept[at + 1])) end
end
local flat = {}
for name, n in pairs(counted) do
  flat[#flat + 1] = name
  flat[#flat + 1] = n
end
return {#members, flat, wrong}
