package payment

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// revertingOwners has the owners whose payment passed the simulation and reverted in a
// transaction, and when the settler saw that. Code can find out whether it is
// simulated, so such a wallet could make us pay gas for nothing with every order: for
// revertingFor the settler does not send its payments. An owner without code can take
// its money away before each block by one transaction, which makes all its payments
// revert: for revertingFor few of them are in open slots at once.
//
// The list is lost at a restart. To find such an owner again costs one transaction.
type revertingOwners map[common.Address]time.Time

// revertingFor is how long an owner stays in the list.
const revertingFor = time.Hour

// noteReverting finds reverting owners among the owners of waiting intents.
func (s *Settler) noteReverting(ctx context.Context, waiting []Intent, standings []Standing) {
	for i, intent := range waiting {
		owner, standing := intent.Permit.From, standings[i]
		if intent.Reverts == 0 || standing.Spent || standing.Failure != nil {
			continue
		}
		if !s.isReverting(owner) {
			s.Log.WarnContext(ctx,
				"payments of a wallet pass the simulation and revert in a block; few or none are sent for a while",
				"wallet", owner, "intent", intent.ID, "code", standing.Code)
		}
		s.reverting[owner] = s.Now()
	}
}

// isReverting reports whether an owner is reverting.
func (s *Settler) isReverting(owner common.Address) bool {
	seen, known := s.reverting[owner]
	if known && s.Now().Sub(seen) >= revertingFor {
		delete(s.reverting, owner)
		return false
	}
	return known
}
