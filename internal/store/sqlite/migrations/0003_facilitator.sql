-- Settling through other people's facilitators, and being one.

-- +goose Up

-- The payments that a facilitator may have sent. A row is written before the
-- facilitator hears of the payment, and taken back if it said that it did
-- nothing.
CREATE TABLE exposures (
    intent_id TEXT PRIMARY KEY REFERENCES intents (id)
) STRICT, WITHOUT ROWID;

-- A payment that another server submitted to our facilitator is an order that
-- nobody quoted and nobody admits: its requester is all zeros, its request_key
-- names the permit, its requirements are those that the server sent.
DROP INDEX orders_unadmitted;

CREATE INDEX orders_unadmitted ON orders (paid_at, id) WHERE status = 'paid' AND admitted_at IS NULL
    AND requester <> '0000000000000000000000000000000000000000000000000000000000000000';
