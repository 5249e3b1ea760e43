-- The queue's tables, version 1.  Times are whole milliseconds since the epoch (the wall clock: for due times and for
-- people); leases are not here, they run on a monotonic clock in memory and start anew with the server.
--
-- state   1 scheduled   2 ready   3 running   4 done   5 dead   6 cancelled   7 purged (a tombstone that keeps the id)
-- how     1 done  2 retried  3 released  4 left  5 returned  6 lost  7 dead  8 cancelled   NULL: still running
--
-- A job's own row carries its last hand-out (number ... error); an earlier one moves to `handouts` when the job is
-- handed out again, so a job that goes well is one row, written three times, or twice where a take waits for it.  The
-- order of hand-outs is judged by commit numbers, not by clocks.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE queues (
    id     INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE,
    paused INTEGER NOT NULL DEFAULT 0,      -- nothing of it is handed out
    closed INTEGER NOT NULL DEFAULT 0       -- nothing new is added to it
);
CREATE TABLE workers (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

CREATE TABLE jobs (
    id           BLOB PRIMARY KEY,          -- UUID version 7, made by the client: new rows go to the right edge
    state        INTEGER NOT NULL,
    queue        INTEGER NOT NULL,
    priority     INTEGER NOT NULL,
    place        INTEGER NOT NULL,          -- first in, first out: grows with each job that becomes ready anew
    listed       INTEGER NOT NULL,          -- 0: while it is ready it waits in memory, and the index leaves it out
    run_at       INTEGER,
    expires      INTEGER,
    vt           INTEGER,                   -- the job's own visibility timeout; NULL: the take's
    max_attempts INTEGER NOT NULL,
    max_losses   INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,
    losses       INTEGER NOT NULL DEFAULT 0,
    task         TEXT NOT NULL,
    key          TEXT,                      -- explicit keys only; NULL: the id is the key
    fingerprint  BLOB NOT NULL,
    body         BLOB NOT NULL,             -- empty once done, and where `big` is set
    big          INTEGER NOT NULL,          -- which row of `bodies` has the body, so that settling does not copy it
    added_at     INTEGER NOT NULL,
    ended_at     INTEGER,                   -- when the job became done, dead, cancelled or purged
    reason       TEXT,                      -- why it is dead or cancelled
    cancel       INTEGER NOT NULL DEFAULT 0,-- asked to cancel while running: 1 ask, 2 terminate
    expired      INTEGER NOT NULL DEFAULT 0,
    number       INTEGER NOT NULL DEFAULT 0,-- of the last hand-out; 0: never handed out
    session      BLOB,
    worker       INTEGER,
    take         INTEGER,
    hold_vt      INTEGER,
    begin_at     INTEGER,
    begin_commit INTEGER,
    end_at       INTEGER,
    end_commit   INTEGER,
    how          INTEGER,
    late         INTEGER NOT NULL DEFAULT 0,-- a settlement came after the hand-out had ended otherwise
    cause        TEXT,
    error        BLOB,
    result       BLOB
) WITHOUT ROWID;

CREATE INDEX ready ON jobs (queue, priority DESC, place) WHERE state = 2 AND listed = 1;
CREATE INDEX due ON jobs (run_at) WHERE state = 1;
CREATE INDEX dead ON jobs (queue, id) WHERE state = 5;
CREATE INDEX expiring ON jobs (expires) WHERE expires IS NOT NULL AND state IN (1, 2);

CREATE TABLE bodies (id INTEGER PRIMARY KEY, body BLOB NOT NULL);

CREATE TABLE handouts (
    job          BLOB NOT NULL,
    number       INTEGER NOT NULL,
    session      BLOB NOT NULL,
    worker       INTEGER NOT NULL,
    take         INTEGER NOT NULL,
    hold_vt      INTEGER NOT NULL,
    begin_at     INTEGER NOT NULL,
    begin_commit INTEGER NOT NULL,
    end_at       INTEGER NOT NULL,
    end_commit   INTEGER NOT NULL,
    how          INTEGER NOT NULL,
    late         INTEGER NOT NULL,
    cause        TEXT,
    error        BLOB,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;

-- Explicit idempotency keys, scoped by task: held while the job is alive (free_at NULL) and until free_at after it.
CREATE TABLE keys (
    task        TEXT NOT NULL,
    key         TEXT NOT NULL,
    job         BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    free_at     INTEGER,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;

-- Ids of adds whose key was held by another job: a repeat of such an add is answered the same and not counted again.
CREATE TABLE aliases (
    id    BLOB PRIMARY KEY,
    first BLOB NOT NULL,
    queue INTEGER NOT NULL,
    at    INTEGER NOT NULL
) WITHOUT ROWID;

-- What a sweep removed, added up in the same transaction, so that the record stays exact for ever.
CREATE TABLE swept (
    scope   TEXT NOT NULL,                  -- 'queue' or 'worker'; 'store' for overlaps, whose owner is 0
    owner   INTEGER NOT NULL,
    counter TEXT NOT NULL,
    n       INTEGER NOT NULL,
    PRIMARY KEY (scope, owner, counter)
) WITHOUT ROWID;
