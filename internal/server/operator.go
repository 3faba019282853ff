package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// readiness is the answer of /readyz: each part and what is wrong with it.
type readiness struct {
	Ready bool              `json:"ready"`
	Parts map[string]string `json:"parts"`
}

// operatorHandler answers an operator's probes: /healthz says that the process
// runs, /readyz whether every part does its work.
func (s *Server) operatorHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready := s.readiness(r.Context())
		status := http.StatusOK
		if !ready.Ready {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, ready)
	})
	return mux
}

func (s *Server) readiness(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	ready := readiness{Ready: true, Parts: map[string]string{}}
	for part, err := range map[string]error{
		"store":   s.store.Ping(ctx),
		"chain":   s.chainHealth(),
		"settler": s.settler.Health(),
	} {
		ready.Parts[part] = "ok"
		if err != nil {
			ready.Ready, ready.Parts[part] = false, err.Error()
		}
	}
	return ready
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // the client has gone if this fails
}
