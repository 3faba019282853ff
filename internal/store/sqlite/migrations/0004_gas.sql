-- +goose Up
-- What a transaction cost, once it is mined and confirmed.
ALTER TABLE transactions ADD COLUMN gas_used INTEGER CHECK (gas_used > 0);
ALTER TABLE transactions ADD COLUMN fee_gwei INTEGER CHECK (fee_gwei >= 0);
CREATE INDEX transactions_mined ON transactions (gas_used, fee_gwei) WHERE gas_used IS NOT NULL;
CREATE INDEX intents_newest ON intents (submitted_at, id);
CREATE INDEX slot_intents_intent ON slot_intents (intent_id);

-- +goose Down
DROP INDEX slot_intents_intent;
DROP INDEX intents_newest;
DROP INDEX transactions_mined;
ALTER TABLE transactions DROP COLUMN fee_gwei;
ALTER TABLE transactions DROP COLUMN gas_used;
