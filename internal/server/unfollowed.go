package server

import (
	"context"
	"fmt"
)

// checkFollowed fails if the database has payments that can still move money and that
// this configuration would not follow: those of another chain, and those in transactions
// of our own if a facilitator settles now. A change of the settlement key is no such
// case: the settler follows the transactions of every key.
func (s *Server) checkFollowed(ctx context.Context) error {
	if s.LeaveUnfollowed {
		return nil
	}
	undecided, err := s.store.Undecided(ctx)
	if err != nil {
		return err
	}
	for _, u := range undecided {
		const drain = "start it with the old value until boxoffice payments counts none that is waiting, sent or " +
			"unsettled, or give --leave-unfollowed to start nevertheless"
		switch {
		case u.ChainID != s.Chain.ID:
			return fmt.Errorf("chain.id is %d, and %d payments on chain %d are not decided: their money can still "+
				"move, and nobody would see it; %s", s.Chain.ID, u.Payments, u.ChainID, drain)
		case u.Sent > 0 && s.Settlement.Via == ViaFacilitator:
			return fmt.Errorf("settlement.via is %q, and %d payments are in transactions that this service signed: "+
				"their money can still move, and nobody would see it; %s", ViaFacilitator, u.Sent, drain)
		}
	}
	return nil
}
