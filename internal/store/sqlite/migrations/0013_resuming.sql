-- Work from before it was run, cancelled runs that end, and lists by two filters.

-- +goose Up

-- What was admitted before there were nodes gets them; no entry of the queue
-- stands for them, so any worker queues them.
INSERT INTO nodes (work_id, position, kind, name, template, objective, after, state, due_at)
SELECT j.id, n.key, 'agent', n.value ->> '$.id', coalesce(n.value ->> '$.template', 'research'), n.value ->> '$.objective', n.value -> '$.after',
       iif(json_array_length(n.value, '$.after') > 0, 'waiting', 'queued'),
       iif(json_array_length(n.value, '$.after') > 0, NULL, j.created_at)
FROM jobs j JOIN json_each(j.brief, '$.nodes') n
WHERE j.state = 'queued' AND NOT EXISTS (SELECT 1 FROM nodes WHERE work_id = j.id);

INSERT INTO nodes (work_id, position, kind, name, template, objective, state, due_at)
SELECT id, 0, 'agent', 'main', template, objective, 'queued', created_at
FROM jobs WHERE state = 'queued' AND NOT EXISTS (SELECT 1 FROM nodes WHERE work_id = jobs.id);

INSERT INTO nodes (work_id, position, kind, name, template, objective, state)
SELECT id, (SELECT count(*) FROM nodes WHERE work_id = jobs.id), 'delivery', 'delivery', '', '', 'waiting'
FROM jobs WHERE state = 'queued' AND NOT EXISTS (SELECT 1 FROM nodes WHERE work_id = jobs.id AND kind = 'delivery');

WITH RECURSIVE member (work_id, position, size, due_at) AS (
    SELECT id, 0, panel_size, created_at FROM oracles
    WHERE state = 'queued' AND NOT EXISTS (SELECT 1 FROM nodes WHERE work_id = oracles.id)
    UNION ALL
    SELECT work_id, position + 1, size, due_at FROM member WHERE position + 1 < size)
INSERT INTO nodes (work_id, position, kind, name, template, objective, state, due_at)
SELECT work_id, position, 'member', 'member', '', '', 'queued', due_at FROM member;

-- The process whose run of the node was cancelled and whose agent may not have
-- ended yet, and until when that is waited for: nothing else runs in its workspace.
ALTER TABLE nodes ADD COLUMN leaving TEXT;
ALTER TABLE nodes ADD COLUMN leaving_until INTEGER CHECK ((leaving IS NULL) = (leaving_until IS NULL));

CREATE INDEX jobs_newest_by_state_and_launch_kind ON jobs (requester, state, launch_kind, created_at, id) WHERE launch_kind IS NOT NULL;
CREATE INDEX jobs_newest_by_template_and_launch_kind ON jobs (requester, template, launch_kind, created_at, id) WHERE launch_kind IS NOT NULL;
CREATE INDEX jobs_newest_by_all ON jobs (requester, state, template, launch_kind, created_at, id) WHERE launch_kind IS NOT NULL;
