package delivery_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Everything here is done with the git program.
func TestMain(m *testing.M) {
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("CI") == "" {
		fmt.Println("LEFT OUT: delivering work needs git")
		os.Exit(0)
	}
	os.Exit(m.Run())
}
