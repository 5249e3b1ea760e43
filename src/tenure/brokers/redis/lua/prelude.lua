-- The queue's rules on Redis, part 1: what all scripts share.  `scripts.py` puts this file in front of each of them.
--
-- Key layout, version 1.  KEYS[1] is a queue's own key, `tenure:{NAME}`; every other key of the queue begins with it,
-- so that all of them are in one hash slot and a script changes a queue in one step.  In NAME the bytes % { } are
-- written %25 %7B %7D.  Times are whole milliseconds by the server's TIME.
--
--   Q             hash    what only grows of the record (added, duplicates, done, cancelled, purged, refused), moved
--                         (how often a job became ready again) and expired (a size); paused, closed; idkeys (a key that
--                         looks like an id is or was held), aging (a job with a latest start was added), out (something
--                         is in Q:out), old (there is more to sweep); seen (when a worker was answered last), run (which
--                         run of the server that was), keep (nothing is swept before), swept (when it was looked for
--                         what is to be), soon (before this nothing in Q:due or Q:leases comes up; missing: unknown),
--                         heard (there was a worker that listens on the channel Q:wake)
--   Q:workers     hash    COUNTER:WORKER -> number (refused, /done ... /cancelled)
--   Q:j:ID        hash    a job, or the alias of a duplicate (st 8); see below
--   Q:b:ID        string  its body, and once it is done its result, where that is longer than 64 bytes: one longer
--                         value would make a hash several times as large
--   Q:h:ID        list    its earlier hand-outs, packed, oldest first
--   Q:ready       zset    ID by (9 - priority) * 2^48 + place, which is added + moved when it became ready
--   Q:due         zset    ID by run_at
--   Q:leases      zset    ID SESSION (64 digits) by the lease's end
--   Q:dead        zset    ID by 0, so in the order of ids
--   Q:ended       zset    ID by when it may be swept: done, cancelled, purged
--   Q:expiring    zset    ID by expires, while the job waits
--   Q:k:TASK\0KEY string  ID and fingerprint of the job that holds an explicit key
--   Q:s:SESSION   string  the last take number that was answered in this queue, or `closed`
--   Q:wake        list    one token at most, while there may be something to take; also a channel, on which a new
--                         token is said where somebody has listened
--   Q:idle        zset    SESSION by when it will have looked again: workers that found nothing
--   Q:out         hash    ID -> packed [queue, ID, m, b]: jobs for other queues, added with the end of one in this
--   Q:swept       hash    what a sweep took away, in the counters of Q and Q:workers
--
-- A job is in exactly one of ready, due, leases, dead and ended.  Its fields:
--   st  state: 1 scheduled 2 ready 3 running 4 done 5 dead 6 cancelled 7 purged 8 alias (then f: the first id)
--   m   what never changes: `d` and msgpack [task, fingerprint] where all else is the default, or `o` and msgpack
--       [task, fingerprint, key, priority, visibility timeout, max_attempts, max_losses, run_at, expires] (nil: none;
--       a time is [milliseconds, relative])
--   b   a short body (gone once done) p   place in `ready`     a  added at     ra  run_at     x  expires
--   n   hand-outs so far   at  attempts   ls  losses   c  cancel mark (1 ask, 2 terminate)
--   e   ended at   y  why dead or cancelled   xp  1: expired   r  a short result   pg  progress
--   wt  channels of those who wait for the end, each followed by a space
--   ttl how long the result stays, or a job that was cancelled while it ran and was not settled
--   of the last hand-out:  s session  w worker  tk take  v visibility timeout  hb begin  he end  ho how  l late
--                          ca cause  er error
--   how: 1 done 2 retried 3 released 4 left 5 returned 6 lost 7 dead 8 cancelled (no ho: it runs)

local call = redis.call
local Q = KEYS[1]
local JOB, READY, DUE, LEASES = Q .. ':j:', Q .. ':ready', Q .. ':due', Q .. ':leases'
local DEAD, ENDED, EXPIRING, WAKE = Q .. ':dead', Q .. ':ended', Q .. ':expiring', Q .. ':wake'
local IDLE, OUT = Q .. ':idle', Q .. ':out'
local FLOOR = 600000
local KEPT = 100
local LAST_MOMENT = 9007199254740991
local STEP = 281474976710656
local HOW = {'done', 'retried', 'released', 'left', 'returned', 'lost', 'dead', 'cancelled'}
local PLAIN = {priority = 5, max_attempts = 20, max_losses = 5}

local clock = call('TIME')
local NOW = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- A script that begins with a write which needs no memory may write on where an add is refused with OOM.
local function in_spite_of_full_memory()
  call('DEL', Q .. ':none')
end

-- What is long is kept beside the job's hash.
local SHORT = 64

local function long(id)
  return Q .. ':b:' .. id
end

-- Counts are gathered and written once, at the end; `stored` is that of the jobs that were added.
local counts, by_worker = {}, {}

local function count(name, n)
  counts[name] = (counts[name] or 0) + n
end

local function count_worker(worker, name, n)
  local field = name .. ':' .. worker
  by_worker[field] = (by_worker[field] or 0) + n
end

local stored = 0

local function write_counts()
  if stored > 0 then call('HINCRBY', Q, 'added', stored) end
  for name, n in pairs(counts) do
    if n ~= 0 then call('HINCRBY', Q, name, n) end
  end
  for field, n in pairs(by_worker) do
    if n ~= 0 then call('HINCRBY', Q .. ':workers', field, n) end
  end
end

-- Fields of a job; none where there is no hash: a record that somebody has spoiled must not stop the other jobs.
local function fields(id, ...)
  local f = redis.pcall('HMGET', JOB .. id, ...)
  return f.err and {} or f
end

-- Where it cannot be read, the message is one of no task, and all is as it is by default.
local SPOILED = {task = '', fingerprint = '', priority = 5, max_attempts = 20, max_losses = 5}

-- What the message says beside its body.
local function head(m)
  local unpacked, o = pcall(cmsgpack.unpack, (m or ''):sub(2))
  if not unpacked or type(o) ~= 'table' or type(o[1]) ~= 'string' or type(o[2]) ~= 'string' then return SPOILED end
  if m:byte(1) == 100 then
    return {task = o[1], fingerprint = o[2], priority = 5, max_attempts = 20, max_losses = 5}
  end
  local vt, numbers = type(o[5]), type(o[4]) .. type(o[6]) .. type(o[7])
  if numbers ~= 'numbernumbernumber' or vt ~= 'number' and vt ~= 'nil' then return SPOILED end
  return {
    task = o[1], fingerprint = o[2], key = o[3], priority = o[4], vt = o[5], max_attempts = o[6], max_losses = o[7],
    run_at = o[8], expires = o[9],
  }
end

-- The same, but for the task and the fingerprint where all else is as it is by default.
local function options(m)
  if m and m:byte(1) == 100 then return PLAIN end
  return head(m)
end

local function key_of(task, key)
  return Q .. ':k:' .. task .. '\0' .. key
end

-- Whether workers listen on the channel, where that is known already.
local heard = nil

local function wake()
  if call('LLEN', WAKE) == 0 then
    call('LPUSH', WAKE, '1')
    if heard == nil then heard = call('HGET', Q, 'heard') end
    if heard then call('PUBLISH', WAKE, '1') end
  end
end

-- A job's place is how many jobs had become ready before it, and one more; whoever asks for one counts it, as `stored` or
-- `moved`.
local place = nil

local function begin_places(added, moved)
  place = place or tonumber(added or 0) + tonumber(moved or 0)
end

local function next_score(priority)
  if not place then begin_places(unpack(call('HMGET', Q, 'added', 'moved'))) end
  place = place + 1
  return (9 - priority) * STEP + place
end
