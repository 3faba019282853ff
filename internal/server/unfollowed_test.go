package server_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
)

// A service does not start if it would not follow money that can still move: on another
// chain, or in its own transactions when a facilitator settles now. --leave-unfollowed
// starts it.
func TestUnfollowedPayments(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) {
		o.SubmitWait, o.Chain.Confirmations = 0, 1000 // its transaction stays unconfirmed
	})
	awaitReady(t, w)
	d := newRequester(t, w)
	order, r := buyOne(t, w, d, w.NewPayer(), 1)
	if r.Status != http.StatusAccepted {
		t.Fatalf("answered %d %s", r.Status, r.Body)
	}
	for listed, _ := payments(t, w, ""); listed.Totals.Sent == 0; listed, _ = payments(t, w, "") {
		runtime.Gosched()
	}
	w.Stop()
	for want, change := range map[string]func(*server.Options){
		"chain.id is 1, and 1 payments on chain 31337 are not decided": func(o *server.Options) { o.Chain.ID = 1 },
		"settlement.via is \"facilitator\", and 1 payments are in transactions": func(o *server.Options) {
			o.Settlement.Via, o.Settlement.Facilitator.URL = server.ViaFacilitator, "http://127.0.0.1:1"
		},
	} {
		options := w.Options
		options.Listen = "127.0.0.1:0"
		change(&options)
		service, err := server.New(t.Context(), options)
		if err == nil {
			t.Error("it starts:", want)
			service.Close()
		} else if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--leave-unfollowed") {
			t.Error(err)
		}
		options.LeaveUnfollowed = true
		if service, err = server.New(t.Context(), options); err != nil {
			t.Fatal(err)
		}
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	}
	w.Options.Chain.Confirmations = 1
	w.Restart() // as it was
	d.until(order, boxoffice.Admitted)
}
