-- How work is run. The queue's own tables (river_*) only say that a node may be
-- due; whether it is, and whose it is, these rows say.

-- +goose Up

CREATE TABLE nodes (
    work_id    TEXT    NOT NULL CHECK (length(work_id) = 36), -- a job or an oracle
    position   INTEGER NOT NULL CHECK (position >= 0),
    kind       TEXT    NOT NULL CHECK (kind IN ('agent', 'member', 'delivery')),
    name       TEXT    NOT NULL CHECK (name <> ''),
    template   TEXT    NOT NULL,
    objective  TEXT    NOT NULL,
    after      TEXT    CHECK (json_valid(after)), -- names of nodes
    state      TEXT    NOT NULL CHECK (state IN ('waiting', 'queued', 'running', 'blocked', 'done', 'failed')),
    attempt    INTEGER NOT NULL DEFAULT 0, -- runs that were begun
    failures   INTEGER NOT NULL DEFAULT 0, -- of them, since the node began or got an answer
    seen       INTEGER NOT NULL DEFAULT 0, -- answers that the last run was told
    queue_id   INTEGER, -- of the queue's entry for the next run
    due_at     INTEGER, -- when the next run may begin
    holder     TEXT,    -- the process that runs it
    held_until INTEGER, -- unless it says that it still does
    summary    TEXT    NOT NULL DEFAULT '',
    choice     TEXT    NOT NULL DEFAULT '',
    reason     TEXT    NOT NULL DEFAULT '',
    log        TEXT    NOT NULL DEFAULT '',
    started_at INTEGER,
    ended_at   INTEGER,
    PRIMARY KEY (work_id, position),
    CHECK ((state = 'running') = (holder IS NOT NULL)),
    CHECK ((state = 'running') = (held_until IS NOT NULL)),
    CHECK ((state = 'queued') = (due_at IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX nodes_held ON nodes (held_until) WHERE state = 'running';
CREATE INDEX nodes_holder ON nodes (holder) WHERE state = 'running';
CREATE INDEX nodes_due ON nodes (due_at) WHERE state = 'queued';

ALTER TABLE oracles ADD COLUMN blocked_reason TEXT CHECK ((state = 'blocked') = (blocked_reason IS NOT NULL));
ALTER TABLE oracles ADD COLUMN answer TEXT CHECK ((state = 'completed') = (answer IS NOT NULL));

ALTER TABLE schedules ADD COLUMN missed TEXT NOT NULL DEFAULT 'skip' CHECK (missed IN ('skip', 'catch_up'));

-- What schedules opened: each run once.
CREATE TABLE schedule_runs (
    schedule_id TEXT    NOT NULL REFERENCES schedules (id),
    number      INTEGER NOT NULL CHECK (number > 0),
    kind        TEXT    NOT NULL CHECK (kind IN ('job', 'oracle')),
    work_id     TEXT    NOT NULL UNIQUE CHECK (length(work_id) = 36),
    due_at      INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, number)
) STRICT, WITHOUT ROWID;

-- What agents elsewhere answered later, by the id of their task.
CREATE TABLE agent_answers (
    id     TEXT PRIMARY KEY,
    answer BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_newest_by_state_and_template ON jobs (requester, state, template, created_at, id);

-- +goose StatementBegin
CREATE TRIGGER nodes_move BEFORE UPDATE OF state ON nodes
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES
    ('waiting', 'queued'), ('queued', 'running'),
    ('running', 'done'), ('running', 'blocked'), ('running', 'failed'), ('running', 'queued'), ('running', 'waiting'),
    ('blocked', 'queued'), ('failed', 'queued'), ('done', 'queued'), ('done', 'waiting'))
BEGIN
    SELECT RAISE(ABORT, 'a node cannot move so');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER jobs_move BEFORE UPDATE OF state ON jobs
WHEN OLD.state = 'completed' AND NEW.state <> 'completed'
BEGIN
    SELECT RAISE(ABORT, 'a completed job stays completed');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER oracles_move BEFORE UPDATE OF state ON oracles
WHEN OLD.state = 'completed' AND NEW.state <> 'completed'
BEGIN
    SELECT RAISE(ABORT, 'a completed oracle stays completed');
END;
-- +goose StatementEnd
