package payment

import (
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// distrustFor is how long an owner is not trusted that was two-faced.
const distrustFor = time.Hour

// twoFaced remembers owners with code whose payment would settle by every
// simulation and did not in a block. Code can tell the one from the other, and
// answers as it likes: without a memory one wallet would have us pay gas for
// each order that it makes, for nothing. An owner without code cannot do that
// for less than it costs us. A restart forgets, and learns for one transaction.
type twoFaced map[common.Address]time.Time

// suspects reports whether a payment that would settle now is not to be sent,
// and remembers its owner. What a reorganisation took back is always sent: its
// order is paid.
func (f twoFaced) suspects(intent Intent, standing Standing, now time.Time) bool {
	if !standing.Code || intent.Undone() {
		return false
	}
	owner := intent.Permit.From
	if intent.LeftOut > 0 {
		f[owner] = now
	}
	seen, known := f[owner]
	if known && now.Sub(seen) >= distrustFor {
		delete(f, owner)
		known = false
	}
	return known
}
