package storetest

import (
	"context"
	"sync/atomic"
	"testing"

	"boxoffice"
	"boxoffice/internal/order"
)

var orderTests = map[string]func(*testing.T, Store){
	"Create": func(t *testing.T, store Store) {
		record := quoted(t, alice)
		saved, created, err := store.Create(t.Context(), record)
		fatal(t, err)
		if !created {
			t.Error("a first order was not created")
		}
		same(t, saved, record)
		got, err := store.Order(t.Context(), alice, record.ID)
		fatal(t, err)
		same(t, got, record)
		if err := got.Quote.Verify(); err != nil {
			t.Errorf("the saved quote: %v", err)
		}
		got, err = store.OrderByKey(t.Context(), alice, record.RequestKey)
		fatal(t, err)
		same(t, got, record)
	},

	"CreateAgain": func(t *testing.T, store Store) {
		first := create(t, store, alice)
		again := quoted(t, alice)
		again.RequestKey, again.SubmittedHash = first.RequestKey, boxoffice.Hash(digest(2))
		saved, created, err := store.Create(t.Context(), again)
		fatal(t, err)
		if created {
			t.Error("a second order was created with the same key")
		}
		same(t, saved, first)
		_, err = store.Order(t.Context(), alice, again.ID)
		wantError(t, err, order.ErrNotFound)
	},

	"CreateAgainWhenPaid": func(t *testing.T, store Store) {
		record, _ := pay(t, store, alice, 1)
		again := quoted(t, alice)
		again.RequestKey = record.RequestKey
		saved, created, err := store.Create(t.Context(), again)
		fatal(t, err)
		if created || saved.ID != record.ID || saved.Status != boxoffice.Paid || saved.Payment == nil {
			t.Errorf("created %t, saved order %s is %s", created, saved.ID, saved.Status)
		}
	},

	"KeysBelongToRequesters": func(t *testing.T, store Store) {
		mine := create(t, store, alice)
		theirs := quoted(t, bob)
		theirs.RequestKey = mine.RequestKey
		_, created, err := store.Create(t.Context(), theirs)
		fatal(t, err)
		if !created {
			t.Error("a requester cannot use a key that another requester uses")
		}
		got, err := store.OrderByKey(t.Context(), bob, mine.RequestKey)
		fatal(t, err)
		same(t, got, theirs)
	},

	"CreateRace": func(t *testing.T, store Store) {
		records := make([]order.Record, racers)
		for i := range records {
			records[i] = quoted(t, alice)
			records[i].RequestKey = records[0].RequestKey
		}
		saved := make([]order.Record, racers)
		var created atomic.Int32
		race(t, nil, func(ctx context.Context, i int) error {
			record, ours, err := store.Create(ctx, records[i])
			if ours {
				created.Add(1)
				if record.ID != records[i].ID {
					t.Errorf("created %s, but saved %s", records[i].ID, record.ID)
				}
			}
			saved[i] = record
			return err
		})
		if created.Load() != 1 {
			t.Errorf("%d orders were created with one key", created.Load())
		}
		for _, record := range saved {
			same(t, record, saved[0])
		}
	},

	"NotFound": func(t *testing.T, store Store) {
		record := create(t, store, alice)
		for name, test := range map[string]struct {
			read  func(context.Context, boxoffice.Requester, boxoffice.UUID) (order.Record, error)
			owner boxoffice.Requester
			id    boxoffice.UUID
		}{
			"no such id":             {store.Order, alice, boxoffice.NewUUID()},
			"no such key":            {store.OrderByKey, alice, boxoffice.NewUUID()},
			"another's id":           {store.Order, bob, record.ID},
			"another's key":          {store.OrderByKey, bob, record.RequestKey},
			"the key in place of id": {store.Order, alice, record.RequestKey},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := test.read(t.Context(), test.owner, test.id)
				wantError(t, err, order.ErrNotFound)
			})
		}
	},

	"MinimalRecord": func(t *testing.T, store Store) {
		record := quoted(t, alice)
		record.Quote.UnitAmount, record.Quote.Runs, record.Quote.Payer = nil, 0, nil
		var err error
		record.Quote.QuoteHash, err = record.Quote.Seal()
		fatal(t, err)
		record.Requirements.Extra = nil
		saved, _, err := store.Create(t.Context(), record)
		fatal(t, err)
		same(t, saved, record)
	},
}
