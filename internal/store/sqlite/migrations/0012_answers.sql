-- Whom our facilitator told that a payment is settled: one caller, who serves
-- what was paid for. A row is written before the answer, and taken back if the
-- answer could not be sent.

-- +goose Up

CREATE TABLE answers (
    intent_id TEXT PRIMARY KEY REFERENCES intents (id),
    caller    TEXT NOT NULL CHECK (caller <> '')
) STRICT, WITHOUT ROWID;

INSERT INTO answers (intent_id, caller)
SELECT i.id, 'before' FROM orders o JOIN intents i ON i.id = o.intent_id
WHERE o.requester = '0000000000000000000000000000000000000000000000000000000000000000' AND i.state = 'settled';

-- +goose Down
DROP TABLE answers;
