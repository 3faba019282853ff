package payment

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// distrustFor is how long an owner is not trusted that was two-faced.
const distrustFor = time.Hour

// revertingOwners remembers owners with code whose payment would settle by every
// simulation and did not in a block. Code can tell the one from the other, and
// answers as it likes: without a memory one wallet would have us pay gas for
// each order that it makes, for nothing. An owner without code cannot do that
// for less than it costs us. A restart forgets, and learns for one transaction.
type revertingOwners map[common.Address]time.Time

// noteReverting finds out who is two-faced.
func (s *Settler) noteReverting(ctx context.Context, waiting []Intent, standings []Standing) {
	for i, intent := range waiting {
		standing := standings[i]
		if standing.Code && intent.Reverts > 0 && !standing.Spent && standing.Failure == nil {
			s.Log.WarnContext(ctx, "a wallet with code accepts in simulations and refuses in blocks; its payments are not sent for a while",
				"wallet", intent.Permit.From, "intent", intent.ID)
			s.reverting[intent.Permit.From] = s.Now()
		}
	}
}

// refuses reports whether a payment that would settle now is not to be sent.
// What a reorganisation took back is sent: its order is paid.
func (s *Settler) refuses(intent Intent, standing Standing) bool {
	seen, known := s.reverting[intent.Permit.From]
	if known && s.Now().Sub(seen) >= distrustFor {
		delete(s.reverting, intent.Permit.From)
		known = false
	}
	return known && standing.Code && !intent.Undone()
}
