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
	_ "modernc.org/sqlite" // the database is read as it lies on the disk, not through the store
)

// Audit is what stands on the chain and in the store when all is over.
type Audit struct {
	Transfers int      // of the token to the recipient, on the chain
	Slots     int      // nonces that the settlement wallet used
	Lost      int      // orders that are not both paid and admitted
	Doubled   int      // transfers that pay for no order, and further transfers, admissions or work of an order
	Faults    []string // everything that is not as it has to be
}

func (a *Audit) fault(kind *int, format string, args ...any) {
	if kind != nil {
		*kind++
	}
	a.Faults = append(a.Faults, fmt.Sprintf(format, args...))
}

func openBook(file string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(5000)")
}

const underWay = `SELECT (SELECT count(*) FROM intents WHERE state IN ('waiting', 'sent')) + (SELECT count(*) FROM slots WHERE closed_at IS NULL)`

// quiet waits until no payment and no slot is under way.
func (s *suite) quiet(ctx context.Context) error {
	for _, book := range s.station.books() {
		if err := quiet(ctx, book); err != nil {
			return err
		}
	}
	return nil
}

func quiet(ctx context.Context, book string) error {
	db, err := openBook(book)
	if err != nil {
		return err
	}
	defer db.Close()
	poll := time.NewTicker(blockTime)
	defer poll.Stop()
	for {
		var n int
		if err := db.QueryRowContext(ctx, underWay).Scan(&n); err != nil || n == 0 {
			return err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("%d payments and slots are still under way: %w", n, context.Cause(ctx))
		}
	}
}

// saved is an order as the store has it.
type saved struct {
	id, status, amount            string
	admitted                      bool
	workID                        sql.NullString
	state, owner, promised, txID  sql.NullString
	logIndex, block               sql.NullInt64
	admissions, works, settlement int // rows of each
}

const allOrders = `
	SELECT o.id, o.status, o.quote ->> '$.payment.amount', o.admitted_at IS NOT NULL, a.work_id,
	       i.state, i.owner, i.amount, i.tx_hash, i.log_index, i.block_number,
	       (SELECT count(*) FROM admissions WHERE order_id = o.id),
	       (SELECT count(*) FROM jobs j WHERE j.order_id = o.id AND NOT EXISTS (SELECT 1 FROM schedule_runs r WHERE r.work_id = j.id)) +
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
			&o.state, &o.owner, &o.promised, &o.txID, &o.logIndex, &o.block, &o.admissions, &o.works, &o.settlement); err != nil {
			return nil, err
		}
		orders[o.id] = o
	}
	return orders, nil
}

// evidence names a Transfer log.
type evidence struct {
	tx    common.Hash
	index uint
}

// transfers returns every transfer to the recipient that stands on the chain.
func (s *suite) transfers(ctx context.Context) (map[evidence]types.Log, error) {
	logs, err := s.chain.Client().FilterLogs(ctx, ethereum.FilterQuery{
		FromBlock: new(big.Int), Addresses: []common.Address{s.chain.Token()},
		Topics: [][]common.Hash{{crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))}, {}, {common.BytesToHash(devchain.PayTo().Bytes())}},
	})
	found := map[evidence]types.Log{}
	for _, log := range logs {
		found[evidence{log.TxHash, log.Index}] = log
	}
	return found, err
}

// audit holds the store, the chain and what buyers saw against each other.
func (s *suite) audit(ctx context.Context) (a Audit, err error) {
	books := s.station.books()
	db, err := openBook(books[len(books)-1])
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
	if len(orders) != s.issued {
		a.fault(nil, "%d orders were saved, %d were made", len(orders), s.issued)
	}
	for _, o := range orders {
		a.checkOrder(o, transfers)
	}
	for _, log := range transfers {
		a.fault(&a.Doubled, "transfer %d of %s in block %d pays for no order", log.Index, log.TxHash, log.BlockNumber)
	}
	for _, book := range books {
		if err := a.checkBook(ctx, book); err != nil {
			return a, err
		}
	}
	if err := a.checkWallet(ctx, s.chain); err != nil {
		return a, err
	}
	a.checkViews(s.views, orders)
	return a, s.checkBalances(ctx, &a)
}

// checkOrder takes the transfer that pays for the order out of transfers.
func (a *Audit) checkOrder(o saved, transfers map[evidence]types.Log) {
	if o.status != "paid" || !o.admitted || o.admissions == 0 || o.works == 0 || o.settlement == 0 {
		a.fault(&a.Lost, "order %s is %s, admitted: %t, with %d admissions, %d works and %d settled payments", o.id, o.status, o.admitted, o.admissions, o.works, o.settlement)
		return
	}
	if o.admissions > 1 || o.works > 1 || o.settlement > 1 {
		a.fault(&a.Doubled, "order %s has %d admissions, %d works and %d settled payments", o.id, o.admissions, o.works, o.settlement)
	}
	key := evidence{common.HexToHash(o.txID.String), uint(o.logIndex.Int64)}
	log, there := transfers[key]
	if !there {
		a.fault(&a.Lost, "order %s is paid by transfer %d of %s, which is not on the chain or pays for another", o.id, key.index, key.tx)
		return
	}
	delete(transfers, key)
	payer, moved := common.BytesToAddress(log.Topics[1].Bytes()), new(big.Int).SetBytes(log.Data)
	if payer != common.HexToAddress(o.owner.String) || moved.String() != o.amount || o.promised.String != o.amount || int64(log.BlockNumber) != o.block.Int64 {
		a.fault(nil, "order %s of %s by %s in block %d was paid with %s by %s in block %d", o.id, o.amount, o.owner.String, o.block.Int64, moved, payer, log.BlockNumber)
	}
}

// checkBook looks for what is forgotten or damaged in a database.
func (a *Audit) checkBook(ctx context.Context, book string) error {
	db, err := openBook(book)
	if err != nil {
		return err
	}
	defer db.Close()
	var forgotten, slots int
	var whole string
	var damaged, overrun int
	err = errors.Join(
		db.QueryRowContext(ctx, underWay).Scan(&forgotten),
		db.QueryRowContext(ctx, "SELECT count(*) FROM slots").Scan(&slots),
		db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&whole),
		db.QueryRowContext(ctx, "SELECT count(*) FROM pragma_foreign_key_check").Scan(&damaged),
		db.QueryRowContext(ctx, `SELECT count(*) FROM schedules s
			WHERE s.runs_bought - s.runs_left <> (SELECT count(*) FROM schedule_runs r JOIN jobs j ON j.id = r.work_id WHERE r.schedule_id = s.id)`).Scan(&overrun),
	)
	if err != nil {
		return err
	}
	a.Slots += slots
	if overrun > 0 {
		a.fault(nil, "%d schedules have opened more or fewer jobs than the runs that they took", overrun)
	}
	if forgotten > 0 {
		a.fault(nil, "%d payments and slots are still under way", forgotten)
	}
	if whole != "ok" || damaged > 0 {
		a.fault(nil, "the database: %s, %d rows without what they refer to", whole, damaged)
	}
	return nil
}

// checkWallet compares what the chain and the books have of the wallet.
func (a *Audit) checkWallet(ctx context.Context, chain *ledger) error {
	nonce, err := chain.Client().NonceAt(ctx, crypto.PubkeyToAddress(devchain.SettlementKey().PublicKey), nil)
	if err != nil {
		return err
	}
	if nonce != uint64(a.Slots) {
		a.fault(nil, "the settlement wallet used %d nonces, the books know %d", nonce, a.Slots)
	}
	return nil
}

// checkViews compares what every buyer was told with what is saved.
func (a *Audit) checkViews(views []view, orders map[string]saved) {
	for _, v := range views {
		o, known := orders[string(v.status.Order.ID)]
		paid, admission := v.status.Payment, v.status.Admission
		switch {
		case !known:
			a.fault(nil, "the buyer of %s has order %s, which is not saved", v.RequestKey, v.status.Order.ID)
		case v.status.Status != boxoffice.Admitted || paid == nil || !paid.Paid || paid.TransactionHash == nil || admission == nil:
			a.fault(nil, "the buyer of order %s was told %q at last", o.id, v.status.Status)
		case v.status.Order.RequestKey != v.RequestKey,
			*paid.TransactionHash != common.HexToHash(o.txID.String),
			paid.Amount != v.Max, paid.Amount.String() != o.amount,
			string(admission.Result.ID) != o.workID.String:
			a.fault(nil, "the buyer of order %s was told of transaction %s over %s and of %s %s", o.id, paid.TransactionHash, paid.Amount, admission.Result.Kind, admission.Result.ID)
		}
	}
}

// checkBalances compares what left each wallet with what it bought.
func (s *suite) checkBalances(ctx context.Context, a *Audit) error {
	price := map[boxoffice.UUID]view{} // by request key: rivals bought one order
	for _, v := range s.views {
		price[v.RequestKey] = v
	}
	owed := map[*wallet]uint64{}
	for _, v := range price {
		owed[v.wallet] += v.amount
	}
	for _, w := range s.wallets {
		gone, err := s.chain.spentBy(ctx, w.key)
		if err != nil {
			return err
		}
		if gone.Cmp(new(big.Int).SetUint64(owed[w])) != 0 {
			a.fault(nil, "%s left wallet %s, which bought for %d", gone, crypto.PubkeyToAddress(w.key.PublicKey), owed[w])
		}
	}
	return nil
}
