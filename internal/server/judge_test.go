package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
)

// The judge can change or refuse an input. While it does not answer, nothing is quoted
// and nothing is saved.
func TestJudge(t *testing.T) {
	asked := 0
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		var question struct {
			Action string
			Input  map[string]any
		}
		if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
			t.Error(err)
		}
		switch objective := question.Input["objective"].(string); {
		case question.Action != boxoffice.ActionJobOpen:
			t.Errorf("asked about %s", question.Action)
		case strings.Contains(objective, "bad"):
			w.Write([]byte(`{"refused":"that is not done here"}`))
		case strings.Contains(objective, "silence"):
			http.Error(w, "out of order", http.StatusBadGateway)
		case strings.Contains(objective, "nonsense"):
			w.Write([]byte(`{"verdict":true}`))
		default:
			question.Input["objective"] = objective + ", and say why"
			json.NewEncoder(w).Encode(map[string]any{"input": question.Input})
		}
	}))
	t.Cleanup(program.Close)
	w := servertest.Start(t, func(o *server.Options) { o.Judge.URL = program.URL })
	d := newRequester(t, w)
	ask := func(key boxoffice.UUID, objective string) reply {
		return d.send("POST", "/requests/quote", asJSON(t, map[string]any{
			"action": boxoffice.ActionJobOpen, "input": map[string]string{"objective": objective}, "requestKey": key,
		}))
	}

	key := boxoffice.NewUUID()
	order := decode[boxoffice.QuoteResponse](t, ask(key, "Look")).Order
	if want := `{"objective":"Look, and say why","template":"research"}`; order.InputJSON != want {
		t.Errorf("the prepared input is %s, want %s", order.InputJSON, want)
	}
	if err := order.Verify(); err != nil {
		t.Error(err)
	}
	before := asked
	if r := ask(key, "Look"); r.Status != http.StatusOK || asked != before {
		t.Errorf("the same again answered %d and asked the judge %d times more", r.Status, asked-before)
	}

	ask(boxoffice.NewUUID(), "Do a bad thing").want(t, http.StatusUnprocessableEntity, boxoffice.ActionRefused, "")
	for _, objective := range []string{"silence", "nonsense"} {
		key := boxoffice.NewUUID()
		ask(key, objective).want(t, http.StatusServiceUnavailable, boxoffice.TemporarilyUnavailable, "")
		if r := ask(key, "Look"); r.Status != http.StatusCreated {
			t.Errorf("after %s the key is taken: %d %s", objective, r.Status, r.Body)
		}
	}
}
