-- How work ends that nobody wants any more, or that ends its worker.

-- +goose Up

-- A node that is cancelled may still have been waiting for its turn; a delivery
-- that failed waits again while the last node is told an input.
DROP TRIGGER nodes_move;

-- +goose StatementBegin
CREATE TRIGGER nodes_move BEFORE UPDATE OF state ON nodes
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES
    ('waiting', 'queued'), ('queued', 'running'), ('queued', 'failed'),
    ('running', 'done'), ('running', 'blocked'), ('running', 'failed'), ('running', 'queued'),
    ('blocked', 'queued'), ('failed', 'queued'), ('failed', 'waiting'), ('done', 'queued'), ('done', 'waiting'))
BEGIN
    SELECT RAISE(ABORT, 'a node cannot move so');
END;
-- +goose StatementEnd

-- A schedule that was stopped keeps its next time and the runs that are left.
ALTER TABLE schedules ADD COLUMN stopped_at INTEGER CHECK (stopped_at IS NULL OR runs_left > 0);

DROP INDEX schedules_due;
CREATE INDEX schedules_due ON schedules (next_run_at, id) WHERE state = 'active' AND stopped_at IS NULL;

-- Runs whose worker was lost, since the node began or got an answer: no failures
-- of the agent.
ALTER TABLE nodes ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;

-- Where agents elsewhere answer later: a box for each task that was sent to one,
-- until the run that sent it is over.
DROP TABLE agent_answers;
CREATE TABLE mailbox (
    id      TEXT PRIMARY KEY, -- of the task
    work_id TEXT NOT NULL CHECK (length(work_id) = 36),
    node    TEXT NOT NULL,    -- as the agent knows it
    answer  BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX mailbox_of_work ON mailbox (work_id, node);
