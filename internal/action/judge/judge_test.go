package judge_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/action/judge"
)

// The judge's URL may hold a key, and errors are logged.
func TestErrorWithoutURL(t *testing.T) {
	program := httptest.NewServer(nil)
	program.Close() // nothing answers there any more
	asked := judge.HTTP{URL: program.URL + "/?key=secret", Timeout: time.Minute}
	_, err := asked.Judge(t.Context(), boxoffice.ActionJobOpen, []byte("{}"))
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}
