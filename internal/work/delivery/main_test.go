package delivery_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// All tests here run the git program.
func TestMain(m *testing.M) {
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("CI") == "" {
		fmt.Println("SKIPPED: these tests need git")
		os.Exit(0)
	}
	os.Exit(m.Run())
}
