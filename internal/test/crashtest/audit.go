package crashtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/big"
	"time"

	"boxoffice"
	"boxoffice/internal/test/devchain"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	_ "modernc.org/sqlite" // the audit reads the file itself, not through the store
)

// Audit is what the chain and the databases contain after a run.
type Audit struct {
	Transfers int      // of the token to the recipient, on the chain
	Slots     int      // nonces that the settlement wallet used
	Lost      int      // orders that are not both paid and admitted
	Extra     int      // transfers without an order; second transfers, admissions or works of an order
	Faults    []string // a sentence about everything that is wrong
}

// fault adds a fault, and counts it in counter unless that is nil.
func (a *Audit) fault(counter *int, format string, args ...any) {
	if counter != nil {
		*counter++
	}
	a.Faults = append(a.Faults, fmt.Sprintf(format, args...))
}

func openDatabase(file string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(5000)")
}

// undecided counts the intents that have to be decided and the open slots.
const undecided = `
	SELECT (SELECT count(*) FROM intents WHERE state IN ('waiting', 'sent')) +
	       (SELECT count(*) FROM slots WHERE closed_at IS NULL)`

// awaitDecisions waits until every intent is decided and every slot is closed, and stays so while the settler looks
// again several times: then it may open slots of which a reorganisation removed the transactions.
func (s *suite) awaitDecisions(ctx context.Context) error {
	for _, file := range s.servers.databases() {
		if err := awaitDecisions(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

func awaitDecisions(ctx context.Context, file string) error {
	db, err := openDatabase(file)
	if err != nil {
		return err
	}
	defer db.Close()
	poll := time.NewTicker(blockTime)
	defer poll.Stop()
	quiet := 0 // how many times in a row nothing was undecided
	for {
		var n int
		if err := db.QueryRowContext(ctx, undecided).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			quiet = 0
		} else if quiet++; quiet > int(8*recheck/blockTime) {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("%d payments and slots are still undecided: %w", n, context.Cause(ctx))
		}
	}
}

// saved is an order as it is in the database.
type saved struct {
	id, status, amount            string
	admitted                      bool
	workID                        sql.NullString
	state, owner, paid, txID      sql.NullString
	logIndex, block               sql.NullInt64
	admissions, works, settlement int // rows of each
}

const allOrders = `
	SELECT o.id, o.status, o.quote ->> '$.payment.amount', o.admitted_at IS NOT NULL, a.work_id,
	       i.state, i.owner, i.amount, i.tx_hash, i.log_index, i.block_number,
	       (SELECT count(*) FROM admissions WHERE order_id = o.id),
	       (SELECT count(*) FROM jobs j
	           WHERE j.order_id = o.id AND NOT EXISTS (SELECT 1 FROM schedule_runs r WHERE r.work_id = j.id)) +
	           (SELECT count(*) FROM schedules WHERE order_id = o.id),
	       (SELECT count(*) FROM intents WHERE order_id = o.id AND state = 'settled')
	FROM orders o LEFT JOIN intents i ON i.id = o.intent_id LEFT JOIN admissions a ON a.order_id = o.id`

func readOrders(ctx context.Context, db *sql.DB) (orders map[string]saved, err error) {
	rows, err := db.QueryContext(ctx, allOrders)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	orders = map[string]saved{}
	for rows.Next() {
		var o saved
		if err := rows.Scan(&o.id, &o.status, &o.amount, &o.admitted, &o.workID,
			&o.state, &o.owner, &o.paid, &o.txID, &o.logIndex, &o.block,
			&o.admissions, &o.works, &o.settlement); err != nil {
			return nil, err
		}
		orders[o.id] = o
	}
	return orders, nil
}

// evidence identifies a Transfer log.
type evidence struct {
	tx    common.Hash
	index uint
}

// transfers returns every transfer to the recipient that is on the chain.
func (s *suite) transfers(ctx context.Context) (map[evidence]types.Log, error) {
	transfer := crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
	logs, err := s.chain.Client().FilterLogs(ctx, ethereum.FilterQuery{
		FromBlock: new(big.Int), Addresses: []common.Address{s.chain.Token()},
		Topics: [][]common.Hash{{transfer}, {}, {common.BytesToHash(devchain.PayTo().Bytes())}},
	})
	found := map[evidence]types.Log{}
	for _, log := range logs {
		found[evidence{log.TxHash, log.Index}] = log
	}
	return found, err
}

// audit compares the databases, the chain and what the clients were told.
func (s *suite) audit(ctx context.Context) (a Audit, err error) {
	databases := s.servers.databases()
	db, err := openDatabase(databases[len(databases)-1])
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	orders, err := readOrders(ctx, db)
	if err != nil {
		return a, err
	}
	transfers, err := s.transfers(ctx)
	if err != nil {
		return a, err
	}
	a.Transfers = len(transfers)
	if len(orders) != s.released {
		a.fault(nil, "%d orders are saved, %d were bought", len(orders), s.released)
	}
	for _, o := range orders {
		a.checkOrder(o, transfers)
	}
	for _, log := range transfers {
		a.fault(&a.Extra, "transfer %d of %s in block %d pays for no order", log.Index, log.TxHash, log.BlockNumber)
	}
	for _, file := range databases {
		if err := a.checkDatabase(ctx, file); err != nil {
			return a, err
		}
	}
	if err := a.checkWallet(ctx, s.chain); err != nil {
		return a, err
	}
	a.checkReceipts(s.receipts, orders)
	return a, s.checkBalances(ctx, &a)
}

// checkOrder finds the transfer that pays for the order and removes it from transfers.
func (a *Audit) checkOrder(o saved, transfers map[evidence]types.Log) {
	if o.status != "paid" || !o.admitted || o.admissions == 0 || o.works == 0 || o.settlement == 0 {
		a.fault(&a.Lost, "order %s is %s, admitted: %t, with %d admissions, %d works and %d settled payments",
			o.id, o.status, o.admitted, o.admissions, o.works, o.settlement)
		return
	}
	if o.admissions > 1 || o.works > 1 || o.settlement > 1 {
		a.fault(&a.Extra, "order %s has %d admissions, %d works and %d settled payments",
			o.id, o.admissions, o.works, o.settlement)
	}
	key := evidence{common.HexToHash(o.txID.String), uint(o.logIndex.Int64)}
	log, found := transfers[key]
	if !found {
		a.fault(&a.Lost, "order %s is paid by transfer %d of %s, which is not on the chain or pays for another order",
			o.id, key.index, key.tx)
		return
	}
	delete(transfers, key)
	payer, moved := common.BytesToAddress(log.Topics[1].Bytes()), new(big.Int).SetBytes(log.Data)
	if payer != common.HexToAddress(o.owner.String) || moved.String() != o.amount || o.paid.String != o.amount ||
		int64(log.BlockNumber) != o.block.Int64 {
		a.fault(nil, "order %s of %s by %s in block %d was paid with %s by %s in block %d",
			o.id, o.amount, o.owner.String, o.block.Int64, moved, payer, log.BlockNumber)
	}
}

// checkDatabase looks for undecided payments, wrong counts of schedule runs and damage.
func (a *Audit) checkDatabase(ctx context.Context, file string) error {
	db, err := openDatabase(file)
	if err != nil {
		return err
	}
	defer db.Close()
	var open, slots, orphans, miscounted int
	var integrity string
	err = errors.Join(
		db.QueryRowContext(ctx, undecided).Scan(&open),
		db.QueryRowContext(ctx, "SELECT count(*) FROM slots").Scan(&slots),
		db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&integrity),
		db.QueryRowContext(ctx, "SELECT count(*) FROM pragma_foreign_key_check").Scan(&orphans),
		db.QueryRowContext(ctx, miscountedSchedules).Scan(&miscounted),
	)
	if err != nil {
		return err
	}
	a.Slots += slots
	if miscounted > 0 {
		a.fault(nil, "%d schedules opened more or fewer jobs than the runs that they used", miscounted)
	}
	if open > 0 {
		a.fault(nil, "%d payments and slots are still undecided", open)
	}
	if integrity != "ok" || orphans > 0 {
		a.fault(nil, "integrity check of the database: %s; %d rows refer to rows that do not exist", integrity, orphans)
	}
	return nil
}

const miscountedSchedules = `
	SELECT count(*) FROM schedules s WHERE s.runs_bought - s.runs_left <>
	    (SELECT count(*) FROM schedule_runs r JOIN jobs j ON j.id = r.work_id WHERE r.schedule_id = s.id)`

// checkWallet compares the nonces that the settlement wallet used with the slots.
func (a *Audit) checkWallet(ctx context.Context, chain *chain) error {
	nonce, err := chain.Client().NonceAt(ctx, crypto.PubkeyToAddress(devchain.SettlementKey().PublicKey), nil)
	if err != nil {
		return err
	}
	if nonce != uint64(a.Slots) {
		a.fault(nil, "the settlement wallet used %d nonces, the databases have %d slots", nonce, a.Slots)
	}
	return nil
}

// checkReceipts compares what every client was told with what is saved.
func (a *Audit) checkReceipts(receipts []receipt, orders map[string]saved) {
	for _, r := range receipts {
		o, known := orders[string(r.status.Order.ID)]
		paid, admission := r.status.Payment, r.status.Admission
		switch {
		case !known:
			a.fault(nil, "the client with request key %s has order %s, which is not saved",
				r.RequestKey, r.status.Order.ID)
		case r.status.Status != boxoffice.Admitted, admission == nil,
			paid == nil, !paid.Paid, paid.TransactionHash == nil:
			a.fault(nil, "the last status of order %s that its client got is %q", o.id, r.status.Status)
		case r.status.Order.RequestKey != r.RequestKey,
			*paid.TransactionHash != common.HexToHash(o.txID.String),
			paid.Amount != r.Max, paid.Amount.String() != o.amount,
			string(admission.Result.ID) != o.workID.String:
			a.fault(nil, "the client of order %s got transaction %s over %s and %s %s",
				o.id, paid.TransactionHash, paid.Amount, admission.Result.Kind, admission.Result.ID)
		}
	}
}

// checkBalances compares what each wallet spent with what it bought.
func (s *suite) checkBalances(ctx context.Context, a *Audit) error {
	purchases := map[boxoffice.UUID]receipt{} // by request key: several clients can buy one order
	for _, r := range s.receipts {
		purchases[r.RequestKey] = r
	}
	owed := map[*wallet]uint64{}
	for _, r := range purchases {
		owed[r.wallet] += r.amount
	}
	for _, w := range s.wallets {
		spent, err := s.chain.spentBy(ctx, w.key)
		if err != nil {
			return err
		}
		if spent.Cmp(new(big.Int).SetUint64(owed[w])) != 0 {
			a.fault(nil, "%s was taken from wallet %s, which bought for %d",
				spent, crypto.PubkeyToAddress(w.key.PublicKey), owed[w])
		}
	}
	return nil
}
