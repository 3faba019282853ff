package payment

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// recentOwners has owners and when the settler last saw something of each. An owner
// stays in it for keepOwners. The list is lost at a restart: to find such an owner again
// costs one transaction.
//
// s.reverting has those whose payment passed the simulation and reverted in a
// transaction. Code can find out whether it is simulated, so such a wallet could make
// us pay gas for nothing with every order: its payments are not sent. An owner without
// code can take its money away before each block by one transaction, which makes all
// its payments revert: few of them are in open slots at once. The same holds for
// s.flipping, those who had no code in the simulation and had some in a transaction.
type recentOwners map[common.Address]time.Time

const keepOwners = time.Hour

func (r recentOwners) has(owner common.Address, now time.Time) bool {
	seen, known := r[owner]
	if known && now.Sub(seen) >= keepOwners {
		delete(r, owner)
		return false
	}
	return known
}

// noteReverting finds reverting owners among the owners of waiting intents.
func (s *Settler) noteReverting(ctx context.Context, waiting []Intent, standings []Standing) {
	for i, intent := range waiting {
		owner, standing := intent.Permit.From, standings[i]
		if intent.Reverts == 0 || standing.Spent || standing.Failure != nil {
			continue
		}
		if !s.reverting.has(owner, s.Now()) {
			s.Log.WarnContext(ctx,
				"payments of a wallet pass the simulation and revert in a block; few or none are sent for a while",
				"wallet", owner, "intent", intent.ID, "code", standing.Code)
		}
		s.reverting[owner] = s.Now()
	}
}
