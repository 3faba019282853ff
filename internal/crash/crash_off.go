//go:build !crashpoints

package crash

// At does nothing.
func At(Step) {}

// AtCommit does nothing.
func AtCommit(string) {}
