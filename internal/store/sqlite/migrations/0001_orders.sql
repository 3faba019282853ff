-- Orders, their payments and the settlement of them. Times are Unix
-- milliseconds: SELECT datetime(created_at / 1000, 'unixepoch'). Hashes and
-- addresses are lowercase hex, amounts and nonces decimal digits.

-- +goose Up

CREATE TABLE orders (
    id             TEXT    PRIMARY KEY CHECK (length(id) = 36),
    requester      TEXT    NOT NULL CHECK (length(requester) = 64 AND requester NOT GLOB '*[^0-9a-f]*'),
    request_key    TEXT    NOT NULL CHECK (length(request_key) = 36),
    status         TEXT    NOT NULL CHECK (status IN ('quoted', 'payment_pending', 'payment_failed', 'paid')),
    quote          TEXT    NOT NULL CHECK (json_valid(quote)),
    input          TEXT    NOT NULL CHECK (json_valid(input)),
    submitted_hash TEXT    NOT NULL CHECK (length(submitted_hash) = 64),
    requirements   TEXT    NOT NULL CHECK (json_valid(requirements)),
    intent_id      TEXT, -- the last payment
    created_at     INTEGER NOT NULL,
    paid_at        INTEGER,
    admitted_at    INTEGER,
    UNIQUE (requester, request_key),
    FOREIGN KEY (intent_id, id) REFERENCES intents (id, order_id) DEFERRABLE INITIALLY DEFERRED,
    FOREIGN KEY (id, admitted_at) REFERENCES admissions (order_id, admitted_at) DEFERRABLE INITIALLY DEFERRED,
    CHECK ((intent_id IS NULL) = (status = 'quoted')),
    CHECK ((paid_at IS NOT NULL) = (status = 'paid')),
    CHECK (admitted_at IS NULL OR status = 'paid')
) STRICT;

CREATE INDEX orders_unadmitted ON orders (paid_at, id) WHERE status = 'paid' AND admitted_at IS NULL;

-- What an admission created. kind says in which table work_id is.
CREATE TABLE admissions (
    order_id    TEXT    PRIMARY KEY REFERENCES orders (id),
    admitted_at INTEGER NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('job', 'oracle', 'workflow', 'schedule')),
    work_id     TEXT    NOT NULL CHECK (length(work_id) = 36),
    job_id      TEXT    REFERENCES jobs (id), -- the job that carries out a workflow
    UNIQUE (order_id, admitted_at)
) STRICT;

-- A payment that another server handed to our facilitator.
CREATE TABLE submissions (
    id     TEXT PRIMARY KEY CHECK (length(id) = 36),
    caller TEXT CHECK (caller <> '') -- the caller to which we answered that the payment is settled
) STRICT, WITHOUT ROWID;

-- A Permit2 nonce belongs to one order or one submission for ever, so that one
-- signature never pays twice.
CREATE TABLE permits (
    chain_id      INTEGER NOT NULL CHECK (chain_id > 0),
    owner         TEXT    NOT NULL
        CHECK (length(owner) = 42 AND owner GLOB '0x*' AND substr(owner, 3) NOT GLOB '*[^0-9a-f]*'),
    nonce         TEXT    NOT NULL
        CHECK (length(nonce) BETWEEN 1 AND 78 AND nonce NOT GLOB '*[^0-9]*' AND (nonce = '0' OR nonce NOT GLOB '0*')),
    order_id      TEXT    REFERENCES orders (id),
    submission_id TEXT    REFERENCES submissions (id),
    PRIMARY KEY (chain_id, owner, nonce),
    UNIQUE (chain_id, owner, nonce, order_id),
    UNIQUE (chain_id, owner, nonce, submission_id),
    CHECK ((order_id IS NULL) <> (submission_id IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE intents (
    id              TEXT    PRIMARY KEY CHECK (length(id) = 36),
    order_id        TEXT    REFERENCES orders (id),      -- it pays for an order
    submission_id   TEXT    REFERENCES submissions (id), -- or is a submission
    chain_id        INTEGER NOT NULL,
    owner           TEXT    NOT NULL,
    nonce           TEXT    NOT NULL,
    token           TEXT    NOT NULL CHECK (length(token) = 42),
    amount          TEXT    NOT NULL CHECK (length(amount) BETWEEN 1 AND 78 AND amount NOT GLOB '*[^0-9]*'),
    payload         TEXT    NOT NULL CHECK (json_valid(payload)), -- secret until it is broadcast
    payload_hash    TEXT    NOT NULL CHECK (length(payload_hash) = 64),
    quote_signature TEXT    CHECK (length(quote_signature) = 132), -- a submission has none
    state           TEXT    NOT NULL CHECK (state IN ('waiting', 'sent', 'settled', 'failed')),
    reason          TEXT    CHECK (reason <> ''), -- why it failed
    final           INTEGER NOT NULL DEFAULT 0 CHECK (final IN (0, 1)), -- failed, and its permit can never settle
    slot_id         TEXT, -- the open slot that carries it
    from_block      INTEGER NOT NULL DEFAULT 0 CHECK (from_block >= 0), -- the newest block when it was verified
    reverts         INTEGER NOT NULL DEFAULT 0 CHECK (reverts >= 0), -- our transactions that did not settle it
    -- The Transfer log that settled it. It stays when a reorganisation removes the transfer.
    tx_hash         TEXT    CHECK (length(tx_hash) = 66),
    log_index       INTEGER CHECK (log_index >= 0),
    block_number    INTEGER CHECK (block_number >= 0),
    settled_at      INTEGER,
    submitted_at    INTEGER NOT NULL,
    UNIQUE (id, order_id),
    FOREIGN KEY (chain_id, owner, nonce, order_id) REFERENCES permits (chain_id, owner, nonce, order_id),
    FOREIGN KEY (chain_id, owner, nonce, submission_id) REFERENCES permits (chain_id, owner, nonce, submission_id),
    FOREIGN KEY (slot_id, id) REFERENCES slot_intents (slot_id, intent_id),
    CHECK ((order_id IS NULL) <> (submission_id IS NULL)),
    CHECK ((order_id IS NULL) = (quote_signature IS NULL)),
    CHECK ((state = 'failed') = (reason IS NOT NULL)),
    CHECK (final = 0 OR state = 'failed'),
    CHECK ((state = 'sent') = (slot_id IS NOT NULL)),
    CHECK (state <> 'settled' OR tx_hash IS NOT NULL),
    CHECK ((tx_hash IS NULL) = (log_index IS NULL)),
    CHECK ((tx_hash IS NULL) = (block_number IS NULL)),
    CHECK ((tx_hash IS NULL) = (settled_at IS NULL))
) STRICT;

CREATE UNIQUE INDEX intents_one_alive ON intents (order_id) WHERE state IN ('waiting', 'sent', 'settled');
CREATE UNIQUE INDEX intents_submission ON intents (submission_id) WHERE submission_id IS NOT NULL;
CREATE UNIQUE INDEX intents_credited ON intents (tx_hash, log_index) WHERE state = 'settled';
CREATE INDEX intents_waiting ON intents (chain_id, submitted_at, id) WHERE state = 'waiting';
CREATE INDEX intents_unresolved ON intents (chain_id, submitted_at, id) WHERE state = 'failed' AND final = 0;
CREATE INDEX intents_pending ON intents (owner, token, chain_id) WHERE state IN ('waiting', 'sent');
CREATE INDEX intents_settled ON intents (chain_id, block_number) WHERE state = 'settled';
CREATE INDEX intents_slot ON intents (slot_id) WHERE slot_id IS NOT NULL;
CREATE INDEX intents_newest ON intents (submitted_at, id);

-- The intents that another facilitator may have sent to the chain. A row is
-- written before the facilitator gets the payment, and deleted if it answered
-- that it did nothing.
CREATE TABLE exposures (
    intent_id TEXT PRIMARY KEY REFERENCES intents (id)
) STRICT, WITHOUT ROWID;

-- A nonce of a settlement wallet. transactions are what was signed for it.
CREATE TABLE slots (
    id           TEXT    PRIMARY KEY CHECK (length(id) = 36),
    chain_id     INTEGER NOT NULL CHECK (chain_id > 0),
    sender       TEXT    NOT NULL CHECK (length(sender) = 42),
    wallet_nonce INTEGER NOT NULL CHECK (wallet_nonce >= 0),
    opened_at    INTEGER NOT NULL,
    closed_at    INTEGER,
    UNIQUE (chain_id, sender, wallet_nonce)
) STRICT;

CREATE INDEX slots_open ON slots (chain_id, sender, wallet_nonce) WHERE closed_at IS NULL;

CREATE TABLE slot_intents (
    slot_id   TEXT    NOT NULL REFERENCES slots (id),
    position  INTEGER NOT NULL, -- of its call in the transaction
    intent_id TEXT    NOT NULL REFERENCES intents (id),
    PRIMARY KEY (slot_id, position),
    UNIQUE (slot_id, intent_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX slot_intents_intent ON slot_intents (intent_id);

CREATE TABLE transactions (
    hash      TEXT    PRIMARY KEY CHECK (length(hash) = 66),
    slot_id   TEXT    NOT NULL REFERENCES slots (id),
    position  INTEGER NOT NULL, -- 0 is the oldest
    raw       BLOB    NOT NULL,
    gas_limit INTEGER NOT NULL,
    fee_cap   TEXT    NOT NULL,
    tip_cap   TEXT    NOT NULL,
    signed_at INTEGER NOT NULL,
    gas_used  INTEGER CHECK (gas_used > 0), -- once it is mined and confirmed
    fee_gwei  INTEGER CHECK (fee_gwei >= 0),
    UNIQUE (slot_id, position)
) STRICT;

CREATE INDEX transactions_mined ON transactions (gas_used, fee_gwei) WHERE gas_used IS NOT NULL;

-- Which process does a thing, since when and until when.
CREATE TABLE leases (
    name   TEXT    PRIMARY KEY,
    holder TEXT    NOT NULL,
    since  INTEGER NOT NULL, -- when the holder took or last renewed it
    until  INTEGER NOT NULL
) STRICT;

-- The state changes that are possible. internal/order and internal/payment decide
-- which of them happens; these triggers refuse what no program may do: take back
-- an order's payment, or change what was decided for good.

-- +goose StatementBegin
CREATE TRIGGER orders_begin BEFORE INSERT ON orders WHEN NEW.status <> 'quoted'
BEGIN
    SELECT RAISE(ABORT, 'a new order must be quoted');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER orders_move BEFORE UPDATE OF status ON orders
WHEN OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (VALUES
    ('quoted', 'payment_pending'),
    ('payment_pending', 'payment_failed'), ('payment_pending', 'paid'),
    ('payment_failed', 'payment_pending'), ('payment_failed', 'paid'))
BEGIN
    SELECT RAISE(ABORT, 'this change of an order''s status is not allowed');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER orders_paid BEFORE UPDATE OF status ON orders
WHEN NEW.status = 'paid' AND OLD.status <> 'paid'
    AND NOT EXISTS (SELECT 1 FROM intents WHERE id = NEW.intent_id AND state = 'settled')
BEGIN
    SELECT RAISE(ABORT, 'an order becomes paid only by a settled payment');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER orders_terms
BEFORE UPDATE OF id, requester, request_key, quote, input, submitted_hash, requirements, created_at ON orders
BEGIN
    SELECT RAISE(ABORT, 'the terms of an order cannot change');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER orders_outcome BEFORE UPDATE OF intent_id, paid_at, admitted_at ON orders
WHEN OLD.admitted_at IS NOT NULL OR OLD.paid_at IS NOT NULL
    AND (NEW.intent_id IS NOT OLD.intent_id OR NEW.paid_at IS NOT OLD.paid_at)
BEGIN
    SELECT RAISE(ABORT, 'the outcome of an order cannot change');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER admissions_keep BEFORE UPDATE ON admissions
BEGIN
    SELECT RAISE(ABORT, 'an admission cannot change');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER permits_keep BEFORE UPDATE ON permits
WHEN (NEW.chain_id, NEW.owner, NEW.nonce, NEW.order_id, NEW.submission_id)
    IS NOT (OLD.chain_id, OLD.owner, OLD.nonce, OLD.order_id, OLD.submission_id)
BEGIN
    SELECT RAISE(ABORT, 'a permit stays with its order or submission');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER permits_forever BEFORE DELETE ON permits
BEGIN
    SELECT RAISE(ABORT, 'a permit stays with its order or submission');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER intents_begin BEFORE INSERT ON intents WHEN NEW.state <> 'waiting'
BEGIN
    SELECT RAISE(ABORT, 'a new payment must be waiting');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER intents_move BEFORE UPDATE OF state ON intents
WHEN OLD.state <> NEW.state AND (OLD.final = 1 OR (OLD.state, NEW.state) NOT IN (VALUES
    ('waiting', 'sent'), ('waiting', 'settled'), ('waiting', 'failed'),
    ('sent', 'waiting'), ('sent', 'settled'),
    ('failed', 'settled'),
    ('settled', 'sent'), ('settled', 'waiting'))) -- a reorganisation removed its transfer
BEGIN
    SELECT RAISE(ABORT, 'this change of a payment''s state is not allowed');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER intents_outcome BEFORE UPDATE OF final, tx_hash, log_index, block_number, settled_at ON intents
WHEN (NEW.final, NEW.tx_hash, NEW.log_index, NEW.block_number, NEW.settled_at)
        IS NOT (OLD.final, OLD.tx_hash, OLD.log_index, OLD.block_number, OLD.settled_at)
    AND (OLD.final = 1 OR OLD.state = 'settled' OR NEW.state <> 'settled' AND
        (NEW.tx_hash, NEW.log_index, NEW.block_number, NEW.settled_at)
        IS NOT (OLD.tx_hash, OLD.log_index, OLD.block_number, OLD.settled_at))
BEGIN
    SELECT RAISE(ABORT, 'the outcome of a payment cannot change');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER intents_terms
BEFORE UPDATE OF id, order_id, submission_id, chain_id, owner, nonce, token, amount,
    payload, payload_hash, quote_signature, submitted_at ON intents
BEGIN
    SELECT RAISE(ABORT, 'the terms of a payment cannot change');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER intents_sent BEFORE UPDATE OF slot_id ON intents
WHEN NEW.slot_id IS NOT NULL AND NEW.slot_id IS NOT OLD.slot_id
    AND (OLD.slot_id IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM slots WHERE id = NEW.slot_id AND chain_id = NEW.chain_id AND closed_at IS NULL))
BEGIN
    SELECT RAISE(ABORT, 'a payment is sent in one open slot of its chain');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER slots_close BEFORE UPDATE OF closed_at ON slots
WHEN NEW.closed_at IS NOT NULL AND (OLD.closed_at IS NOT NULL OR EXISTS (SELECT 1 FROM intents WHERE slot_id = OLD.id))
BEGIN
    SELECT RAISE(ABORT, 'a slot closes when all its payments are decided');
END;
-- +goose StatementEnd
