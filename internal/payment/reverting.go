package payment

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// revertingOwners has the owners with code whose payment passed the simulation and
// reverted in a transaction, and when the settler saw that. Code can find out whether
// it is simulated, so such a wallet could make us pay gas for nothing with every order.
// For revertingFor the settler does not send its payments. An owner without code has
// to spend at least as much on this as we do.
//
// The list is lost at a restart. To find such an owner again costs one transaction.
type revertingOwners map[common.Address]time.Time

// revertingFor is how long the payments of a reverting owner are not sent.
const revertingFor = time.Hour

// noteReverting finds reverting owners among the owners of waiting intents.
func (s *Settler) noteReverting(ctx context.Context, waiting []Intent, standings []Standing) {
	for i, intent := range waiting {
		standing := standings[i]
		if standing.Code && intent.Reverts > 0 && !standing.Spent && standing.Failure == nil {
			s.Log.WarnContext(ctx,
				"a wallet with code accepts payments in the simulation and reverts them; they are not sent for a while",
				"wallet", intent.Permit.From, "intent", intent.ID)
			s.reverting[intent.Permit.From] = s.Now()
		}
	}
}

// isReverting reports whether an intent must not be sent because its owner is
// reverting. An undone intent is always sent, because its order is paid.
func (s *Settler) isReverting(intent Intent, standing Standing) bool {
	seen, known := s.reverting[intent.Permit.From]
	if known && s.Now().Sub(seen) >= revertingFor {
		delete(s.reverting, intent.Permit.From)
		known = false
	}
	return known && standing.Code && !intent.Undone()
}
