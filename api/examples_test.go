package api_test

import (
	"cmp"
	"encoding/json"
	"testing"

	"boxoffice"
)

// The examples are one purchase that could have happened: every resource is
// valid, and every hash is that of what it stands for.
func TestExamplesAreAPurchase(t *testing.T) {
	var got struct {
		Components struct {
			Examples struct {
				NewOrder          struct{ Value boxoffice.QuoteResponse }
				Offer             struct{ Value boxoffice.Challenge }
				Pending, Admitted struct{ Value boxoffice.Status }
				Jobs              struct{ Value boxoffice.JobList }
			}
		}
	}
	if err := json.Unmarshal(document(t), &got); err != nil {
		t.Fatal(err)
	}
	examples := got.Components.Examples
	order, offer := examples.NewOrder.Value.Order, examples.Offer.Value
	for name, err := range map[string]error{
		"new order": cmp.Or(examples.NewOrder.Value.Validate(), order.Verify()),
		"offer":     offer.Quote.Verify(),
		"pending":   cmp.Or(examples.Pending.Value.Validate(), examples.Pending.Value.Order.Verify()),
		"admitted":  cmp.Or(examples.Admitted.Value.Validate(), examples.Admitted.Value.Order.Verify()),
		"jobs":      examples.Jobs.Value.Validate(),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	token, err := boxoffice.ParseToken("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
	if err != nil {
		t.Fatal(err)
	}
	if offer.RequesterScopeHash != token.Requester().ScopeHash("https://tickets.example") {
		t.Error("the scope hash is not that of the token")
	}
	if offer.Quote.QuoteHash != order.Quote.QuoteHash || string(offer.Input) != order.InputJSON {
		t.Error("the challenge is not that of the order")
	}
	if examples.Jobs.Value.Jobs[0].ID != examples.Admitted.Value.Admission.Result.ID {
		t.Error("the job is not the one that was admitted")
	}
}
