package crashtest

import (
	"database/sql"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"boxoffice/internal/crash"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// A small run. go run ./internal/test/figures --only crash is a large one.
func TestKilledServersLoseNothing(t *testing.T) {
	for name, config := range map[string]Config{
		"by its own settler": {Orders: 60, Random: 1, Steps: []crash.Step{
			crash.PaymentSaved, crash.SlotSaved, crash.TransactionSent, crash.ReplacementSaved,
			crash.CommitDecisions, crash.DecisionsSaved, crash.AdmissionSaved, crash.CommitReopening,
		}},
		"through a facilitator": {Remote: true, Orders: 40, Random: 1, Steps: []crash.Step{
			crash.CommitExposure, crash.ExposureSaved, crash.FacilitatorReplied, crash.CommitDecisions,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config.Seed, config.Each, config.Timeout = rand.Uint64(), 1, 3*time.Minute
			config.Dir, config.Progress = t.TempDir(), t.Output()
			report, err := Run(t.Context(), config)
			if err != nil {
				t.Fatalf("seed %d: %v", report.Seed, err)
			}
			if err := report.Write(t.Output()); err != nil {
				t.Fatal(err)
			}
			if err := report.Failed(); err != nil {
				t.Errorf("seed %d: %v", report.Seed, err)
			}
			if report.Transfers != report.Orders {
				t.Errorf("%d transfers for %d orders", report.Transfers, report.Orders)
			}
		})
	}
}

func TestAuditFindsEachFault(t *testing.T) {
	payer, other := common.HexToAddress("0x0b"), common.HexToAddress("0x0d")
	transaction := common.HexToHash("0x0c")
	good := func() saved {
		text := func(s string) sql.NullString { return sql.NullString{String: s, Valid: true} }
		number := func(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: true} }
		return saved{
			id: "an order", status: "paid", amount: "7", admitted: true, workID: text("a job"),
			state: text("settled"), owner: text(payer.Hex()), paid: text("7"), txID: text(transaction.Hex()),
			logIndex: number(1), block: number(9), admissions: 1, works: 1, settlement: 1,
		}
	}
	transfer := func(amount int64) types.Log {
		return types.Log{
			Topics:      []common.Hash{{}, common.BytesToHash(payer.Bytes())},
			Data:        common.BigToHash(big.NewInt(amount)).Bytes(),
			BlockNumber: 9,
		}
	}
	for name, test := range map[string]struct {
		change      func(*saved)
		moved       int64
		lost, extra int
		fault       string
	}{
		"no fault":             {},
		"an unpaid order":      {change: func(o *saved) { o.status = "payment_pending" }, lost: 1, fault: "payment_pending"},
		"no admission":         {change: func(o *saved) { o.admitted, o.admissions = false, 0 }, lost: 1, fault: "0 admis"},
		"no work":              {change: func(o *saved) { o.works = 0 }, lost: 1, fault: "0 works"},
		"two works":            {change: func(o *saved) { o.works = 2 }, extra: 1, fault: "2 works"},
		"two settled payments": {change: func(o *saved) { o.settlement = 2 }, extra: 1, fault: "2 settled"},
		"no such transfer":     {change: func(o *saved) { o.logIndex.Int64 = 2 }, lost: 1, fault: "not on the chain"},
		"another amount":       {moved: 8, fault: "was paid with 8"},
		"another payer":        {change: func(o *saved) { o.owner.String = other.Hex() }, fault: "was paid with 7"},
		"another block":        {change: func(o *saved) { o.block.Int64 = 8 }, fault: "in block 8 was paid"},
	} {
		t.Run(name, func(t *testing.T) {
			o, moved := good(), int64(7)
			if test.change != nil {
				test.change(&o)
			}
			if test.moved != 0 {
				moved = test.moved
			}
			var a Audit
			a.checkOrder(o, map[evidence]types.Log{{transaction, 1}: transfer(moved)})
			if a.Lost != test.lost || a.Extra != test.extra {
				t.Errorf("lost %d, extra %d; want %d and %d", a.Lost, a.Extra, test.lost, test.extra)
			}
			if all := strings.Join(a.Faults, "\n"); (test.fault == "") != (all == "") ||
				!strings.Contains(all, test.fault) {
				t.Errorf("faults %q, want one with %q", all, test.fault)
			}
		})
	}
}

// A Transfer log pays for one order only.
func TestAuditFindsTwoOrdersWithOneTransfer(t *testing.T) {
	o := saved{id: "an order", status: "paid", amount: "0", admitted: true, admissions: 1, works: 1, settlement: 1}
	o.paid.String = "0"
	transfers := map[evidence]types.Log{{}: {Topics: make([]common.Hash, 2)}}
	var a Audit
	a.checkOrder(o, transfers)
	a.checkOrder(o, transfers)
	if a.Lost != 1 || len(a.Faults) != 1 {
		t.Errorf("lost %d, faults %q", a.Lost, a.Faults)
	}
}
