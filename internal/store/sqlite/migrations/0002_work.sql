-- The work that admissions opened, and how it is run. The columns requester,
-- payer and order_id are of the order whose admission opened the work.

-- +goose Up

CREATE TABLE jobs (
    id              TEXT    PRIMARY KEY CHECK (length(id) = 36),
    requester       TEXT    NOT NULL CHECK (length(requester) = 64),
    payer           TEXT    NOT NULL CHECK (length(payer) = 42),
    order_id        TEXT    NOT NULL REFERENCES orders (id),
    state           TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'blocked', 'completed')),
    template        TEXT    NOT NULL CHECK (template <> ''),
    objective       TEXT    NOT NULL,
    launch_kind     TEXT,
    blocked_reason  TEXT,
    delivery        TEXT    CHECK (json_valid(delivery)),
    project_id      TEXT,
    project_version INTEGER CHECK (project_version > 0),
    brief           TEXT    NOT NULL CHECK (json_valid(brief)),
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    UNIQUE (project_id, project_version),
    CHECK ((state = 'blocked') = (blocked_reason IS NOT NULL)),
    CHECK ((project_id IS NULL) = (project_version IS NULL))
) STRICT;

-- One index for each combination of filters, so that no list of jobs is sorted.
CREATE INDEX jobs_newest ON jobs (requester, created_at, id);
CREATE INDEX jobs_newest_by_state ON jobs (requester, state, created_at, id);
CREATE INDEX jobs_newest_by_template ON jobs (requester, template, created_at, id);
CREATE INDEX jobs_newest_by_state_and_template ON jobs (requester, state, template, created_at, id);
CREATE INDEX jobs_newest_by_launch_kind ON jobs (requester, launch_kind, created_at, id) WHERE launch_kind IS NOT NULL;
CREATE INDEX jobs_newest_by_state_and_launch_kind ON jobs (requester, state, launch_kind, created_at, id) WHERE launch_kind IS NOT NULL;
CREATE INDEX jobs_newest_by_template_and_launch_kind ON jobs (requester, template, launch_kind, created_at, id) WHERE launch_kind IS NOT NULL;
CREATE INDEX jobs_newest_by_all ON jobs (requester, state, template, launch_kind, created_at, id) WHERE launch_kind IS NOT NULL;

-- +goose StatementBegin
CREATE TRIGGER jobs_move BEFORE UPDATE OF state ON jobs
WHEN OLD.state = 'completed' AND NEW.state <> 'completed'
BEGIN
    SELECT RAISE(ABORT, 'a completed job stays completed');
END;
-- +goose StatementEnd

-- The inputs that requesters paid to give to jobs.
CREATE TABLE job_inputs (
    order_id TEXT    PRIMARY KEY REFERENCES orders (id),
    job_id   TEXT    NOT NULL REFERENCES jobs (id),
    text     TEXT    NOT NULL,
    at       INTEGER NOT NULL
) STRICT;

CREATE INDEX job_inputs_oldest ON job_inputs (job_id, at, order_id);

CREATE TABLE oracles (
    id             TEXT    PRIMARY KEY CHECK (length(id) = 36),
    requester      TEXT    NOT NULL CHECK (length(requester) = 64),
    payer          TEXT    NOT NULL CHECK (length(payer) = 42),
    order_id       TEXT    NOT NULL REFERENCES orders (id),
    state          TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'blocked', 'completed')),
    question       TEXT    NOT NULL,
    panel_size     INTEGER NOT NULL CHECK (panel_size > 0),
    options        TEXT    CHECK (json_valid(options)),
    context        TEXT    NOT NULL,
    blocked_reason TEXT,
    answer         TEXT    CHECK (json_valid(answer)),
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    CHECK ((state = 'blocked') = (blocked_reason IS NOT NULL)),
    CHECK ((state = 'completed') = (answer IS NOT NULL))
) STRICT;

CREATE INDEX oracles_newest ON oracles (requester, created_at, id);

-- +goose StatementBegin
CREATE TRIGGER oracles_move BEFORE UPDATE OF state ON oracles
WHEN OLD.state = 'completed' AND NEW.state <> 'completed'
BEGIN
    SELECT RAISE(ABORT, 'a completed oracle stays completed');
END;
-- +goose StatementEnd

-- The state and updated_at of a workflow are those of its job.
CREATE TABLE workflows (
    id         TEXT    PRIMARY KEY CHECK (length(id) = 36),
    requester  TEXT    NOT NULL CHECK (length(requester) = 64),
    payer      TEXT    NOT NULL CHECK (length(payer) = 42),
    order_id   TEXT    NOT NULL REFERENCES orders (id),
    objective  TEXT    NOT NULL,
    shape      TEXT    NOT NULL CHECK (shape IN ('chain', 'dag')),
    nodes      TEXT    NOT NULL CHECK (json_valid(nodes)),
    job_id     TEXT    NOT NULL UNIQUE REFERENCES jobs (id),
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX workflows_newest ON workflows (requester, created_at, id);

CREATE TABLE schedules (
    id               TEXT    PRIMARY KEY CHECK (length(id) = 36),
    requester        TEXT    NOT NULL CHECK (length(requester) = 64),
    payer            TEXT    NOT NULL CHECK (length(payer) = 42),
    order_id         TEXT    NOT NULL REFERENCES orders (id),
    state            TEXT    NOT NULL CHECK (state IN ('active', 'stopped', 'ended')),
    action           TEXT    NOT NULL CHECK (action IN ('job.open', 'oracle.request')),
    input            TEXT    NOT NULL CHECK (json_valid(input)),
    interval_minutes INTEGER NOT NULL CHECK (interval_minutes > 0),
    missed           TEXT    NOT NULL CHECK (missed IN ('skip', 'catch_up')),
    runs_bought      INTEGER NOT NULL,
    runs_left        INTEGER NOT NULL CHECK (runs_left BETWEEN 0 AND runs_bought),
    next_run_at      INTEGER,
    stopped_before   INTEGER, -- when the next run was due, as the schedule was stopped
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    CHECK ((state = 'ended') = (runs_left = 0)),
    CHECK ((state = 'active') = (next_run_at IS NOT NULL)),
    CHECK ((state = 'stopped') = (stopped_before IS NOT NULL))
) STRICT;

CREATE INDEX schedules_newest ON schedules (requester, created_at, id);
CREATE INDEX schedules_due ON schedules (next_run_at, id) WHERE state = 'active';

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

-- The steps and deliveries of jobs, and the members of panels. The queued rows
-- are the queue.
CREATE TABLE nodes (
    work_id       TEXT    NOT NULL CHECK (length(work_id) = 36), -- a job or an oracle
    position      INTEGER NOT NULL CHECK (position >= 0),
    kind          TEXT    NOT NULL CHECK (kind IN ('agent', 'member', 'delivery')),
    name          TEXT    NOT NULL CHECK (name <> ''),
    template      TEXT    NOT NULL CHECK (template <> ''),
    objective     TEXT    NOT NULL,
    after         TEXT    CHECK (json_valid(after)), -- names of nodes
    state         TEXT    NOT NULL CHECK (state IN ('waiting', 'queued', 'running', 'blocked', 'done', 'failed')),
    attempts      INTEGER NOT NULL, -- runs that were started
    failures      INTEGER NOT NULL, -- failed runs since the node began or got an input
    workers_lost  INTEGER NOT NULL, -- runs whose worker was lost, since the node began or got an input
    inputs_given  INTEGER NOT NULL, -- how many inputs of the job the last run was given
    due_at        INTEGER,          -- when the next run may start
    holder        TEXT,             -- the process that runs the node
    held_until    INTEGER,          -- when the run expires, unless its holder renews it
    ending_holder TEXT,             -- the process whose run was cancelled and whose agent may not have ended
    ending_until  INTEGER,          -- how long the job's next run waits for that
    summary       TEXT    NOT NULL,
    choice        TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    log           TEXT    NOT NULL DEFAULT '',
    started_at    INTEGER,
    ended_at      INTEGER,
    PRIMARY KEY (work_id, position),
    CHECK ((state = 'running') = (holder IS NOT NULL)),
    CHECK ((state = 'running') = (held_until IS NOT NULL)),
    CHECK ((state = 'queued') = (due_at IS NOT NULL)),
    CHECK ((ending_holder IS NULL) = (ending_until IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX nodes_due ON nodes (due_at, template) WHERE state = 'queued';
CREATE INDEX nodes_held ON nodes (held_until) WHERE state = 'running';
CREATE INDEX nodes_ending ON nodes (work_id, ending_until) WHERE ending_until IS NOT NULL;

-- +goose StatementBegin
CREATE TRIGGER nodes_move BEFORE UPDATE OF state ON nodes
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES
    ('waiting', 'queued'), ('queued', 'running'), ('queued', 'failed'),
    ('running', 'done'), ('running', 'blocked'), ('running', 'failed'), ('running', 'queued'), ('running', 'waiting'),
    ('blocked', 'queued'), ('failed', 'queued'), ('done', 'queued'))
BEGIN
    SELECT RAISE(ABORT, 'docs/states.md has no such change of a node');
END;
-- +goose StatementEnd

-- The tasks for which agents elsewhere may report a result later. A row is there
-- until the run that sent the task is over.
CREATE TABLE callbacks (
    task_id TEXT PRIMARY KEY,
    work_id TEXT NOT NULL CHECK (length(work_id) = 36),
    node    TEXT NOT NULL, -- its label
    result  BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX callbacks_of_node ON callbacks (work_id, node);
