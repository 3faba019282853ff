-- What admissions created. owner columns: requester, payer, order_id (the order
-- whose admission opened it).

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

CREATE INDEX jobs_newest ON jobs (requester, created_at, id);
CREATE INDEX jobs_newest_by_state ON jobs (requester, state, created_at, id);
CREATE INDEX jobs_newest_by_template ON jobs (requester, template, created_at, id);
CREATE INDEX jobs_newest_by_launch_kind ON jobs (requester, launch_kind, created_at, id) WHERE launch_kind IS NOT NULL;

-- The inputs that requesters paid to give to jobs.
CREATE TABLE job_answers (
    order_id TEXT    PRIMARY KEY REFERENCES orders (id),
    job_id   TEXT    NOT NULL REFERENCES jobs (id),
    text     TEXT    NOT NULL,
    at       INTEGER NOT NULL
) STRICT;

CREATE INDEX job_answers_oldest ON job_answers (job_id, at, order_id);

CREATE TABLE oracles (
    id         TEXT    PRIMARY KEY CHECK (length(id) = 36),
    requester  TEXT    NOT NULL CHECK (length(requester) = 64),
    payer      TEXT    NOT NULL CHECK (length(payer) = 42),
    order_id   TEXT    NOT NULL REFERENCES orders (id),
    state      TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'blocked', 'completed')),
    question   TEXT    NOT NULL,
    panel_size INTEGER NOT NULL CHECK (panel_size > 0),
    options    TEXT    CHECK (json_valid(options)),
    context    TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX oracles_newest ON oracles (requester, created_at, id);

-- The state of a workflow, and when it last changed, are those of its job.
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
    state            TEXT    NOT NULL CHECK (state IN ('active', 'ended')),
    action           TEXT    NOT NULL CHECK (action IN ('job.open', 'oracle.request')),
    input            TEXT    NOT NULL CHECK (json_valid(input)),
    interval_minutes INTEGER NOT NULL CHECK (interval_minutes > 0),
    runs_bought      INTEGER NOT NULL,
    runs_left        INTEGER NOT NULL CHECK (runs_left BETWEEN 0 AND runs_bought),
    next_run_at      INTEGER,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    CHECK ((state = 'ended') = (runs_left = 0)),
    CHECK ((state = 'ended') = (next_run_at IS NULL))
) STRICT;

CREATE INDEX schedules_newest ON schedules (requester, created_at, id);
CREATE INDEX schedules_due ON schedules (next_run_at, id) WHERE state = 'active';
