package payment

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// revertingOwners has the owners with code whose payment passed the simulation and
// reverted in a transaction, and when that was seen. Code can see whether it is
// simulated, so such a wallet could make us pay gas for nothing with every order.
// For a while its payments are not sent. An owner without code cannot do that for
// less than it costs us.
//
// A restart forgets these owners; to learn of one again costs one transaction.
type revertingOwners map[common.Address]time.Time

// revertingFor is how long the payments of a reverting owner are not sent.
const revertingFor = time.Hour

// noteReverting finds reverting owners among the owners of waiting intents.
func (s *Settler) noteReverting(ctx context.Context, waiting []Intent, standings []Standing) {
	for i, intent := range waiting {
		standing := standings[i]
		if standing.Code && intent.Reverts > 0 && !standing.Spent && standing.Failure == nil {
			s.Log.WarnContext(ctx, "a wallet with code accepts in simulations and refuses in blocks; its payments "+
				"are not sent for a while",
				"wallet", intent.Permit.From, "intent", intent.ID)
			s.reverting[intent.Permit.From] = s.Now()
		}
	}
}

// isReverting reports whether an intent is not sent because its owner is a
// reverting one. An undone intent is sent all the same, because its order is paid.
func (s *Settler) isReverting(intent Intent, standing Standing) bool {
	seen, known := s.reverting[intent.Permit.From]
	if known && s.Now().Sub(seen) >= revertingFor {
		delete(s.reverting, intent.Permit.From)
		known = false
	}
	return known && standing.Code && !intent.Undone()
}
