-- The queue's rules, part 5: whether time has brought anything.  The scripts that use this are told two things first:
-- ARGV[1] run, which run of the server this is, and ARGV[2] quiet.

local GAP = 1000

local queue = call('HMGET', Q, 'run', 'seen', 'keep', 'aging', 'old', 'paused', 'out', 'swept', 'soon', 'heard')
local SEEN, SOON = tonumber(queue[2] or 0), tonumber(queue[9])
heard = queue[10]

-- Some things are written or looked at now and then only.
local function is_long_ago(time)
  return NOW - time > 200 or NOW < time
end

-- A server that did not answer for a while gives every running lease its full time again.  Two signs tell of it: it
-- is another run of the server than the last time, or the worker has wanted something for longer than a second while
-- no worker was answered (`quiet`: milliseconds in which it wanted nothing since its last answer; empty: no answer yet).
-- A clock that was set forward looks the same.  One that was set back would make leases longer, so they begin anew too.
local SET_BACK = NOW + GAP < SEEN
local GONE = SET_BACK or queue[1] and queue[1] ~= ARGV[1]
  or SEEN > 0 and ARGV[2] ~= '' and NOW - SEEN - tonumber(ARGV[2]) > GAP
local TO_NOTE = is_long_ago(SEEN) or queue[1] ~= ARGV[1]

local function note_run()
  if TO_NOTE then call('HSET', Q, 'run', ARGV[1], 'seen', NOW) end
end
