//go:build crashpoints

package crash

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// armed is the step at which this process dies; count is how many passes of it are
// left, the last of which kills.
var (
	armed Step
	count atomic.Int64
)

func init() {
	text, set := os.LookupEnv(Variable)
	if !set {
		return
	}
	name, times, _ := strings.Cut(text, "#")
	n, err := strconv.ParseInt(times, 10, 64)
	if err != nil || n < 1 || !slices.Contains(Steps, Step(name)) && !slices.Contains(RemoteSteps, Step(name)) {
		panic(fmt.Sprintf("%s: %q is not a step, # and a count", Variable, text))
	}
	armed = Step(name)
	count.Store(n)
}

// At kills the process if the step is armed and this is its last pass. The process
// closes nothing that is open and runs nothing that is deferred.
func At(step Step) {
	if step != armed || count.Add(-1) != 0 {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// AtCommit is At for the store's transaction of that name, right before it commits.
func AtCommit(transaction string) { At(commitPrefix + Step(transaction)) }
