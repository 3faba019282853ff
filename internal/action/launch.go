package action

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"boxoffice"
)

// completeLaunch refuses a launch that the catalog does not offer now.
func completeLaunch(c *Catalog, l *boxoffice.LaunchOpen) error {
	launches := c.Launches()
	if launches == nil {
		return refuse(boxoffice.RefusedLaunchesUnavailable, "this service launches on no chain now")
	}
	chains := launches.Chains
	at := slices.IndexFunc(chains, func(chain boxoffice.LaunchChain) bool { return chain.ChainID == l.ChainID })
	if at < 0 {
		var ids []string
		for _, chain := range chains {
			ids = append(ids, fmt.Sprint(chain.ChainID))
		}
		return refuse(boxoffice.RefusedChainNotListed,
			"a launch cannot deploy on chain %d; the chains are %s", l.ChainID, strings.Join(ids, ", "))
	}
	chain := chains[at]
	if !slices.Contains(chain.Kinds, l.Kind) {
		return refuse(boxoffice.RefusedKindNotOffered,
			"chain %d does not offer %s; it offers %s", l.ChainID, l.Kind, listed(chain.Kinds))
	}
	if l.PairWith == "" {
		return nil
	}
	var offered []string
	for _, pairing := range chain.Pairings {
		if slices.Contains(pairing.Kinds, l.Kind) {
			offered = append(offered, pairing.PairWith)
		}
	}
	if !slices.Contains(offered, l.PairWith) {
		return refuse(boxoffice.RefusedPairingNotOffered,
			"%s on chain %d cannot be paired with %s; its pairings are %s",
			l.Kind, l.ChainID, l.PairWith, listed(offered))
	}
	return nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// checkLaunches returns an error if the schema of launch.open refuses a listed kind or pairing, because then requesters
// could not buy it.
func checkLaunches(launches *boxoffice.Launches) error {
	if launches == nil {
		return nil
	}
	if err := launches.Validate(); err != nil {
		return err
	}
	for _, chain := range launches.Chains {
		if len(chain.Kinds) == 0 {
			return fmt.Errorf("chain %d offers no kind", chain.ChainID)
		}
		for _, kind := range chain.Kinds {
			if err := askable(boxoffice.LaunchOpen{Kind: kind, ChainID: chain.ChainID}); err != nil {
				return fmt.Errorf("chain %d, kind %q: %w", chain.ChainID, kind, err)
			}
		}
		for _, pairing := range chain.Pairings {
			if pairing.PairWith == "" {
				return fmt.Errorf("chain %d: a pairing has no pairWith", chain.ChainID)
			}
			for _, kind := range pairing.Kinds {
				if !slices.Contains(chain.Kinds, kind) {
					return fmt.Errorf("chain %d, pairing %s: the chain does not offer %q",
						chain.ChainID, pairing.PairWith, kind)
				}
				launch := boxoffice.LaunchOpen{Kind: kind, ChainID: chain.ChainID, PairWith: pairing.PairWith}
				if err := askable(launch); err != nil {
					return fmt.Errorf("chain %d, pairing %q: %w", chain.ChainID, pairing.PairWith, err)
				}
			}
		}
	}
	return nil
}

func askable(launch boxoffice.LaunchOpen) error {
	launch.Objective = "any"
	if problems := violations(boxoffice.ActionLaunchOpen, parse(encode(launch)), nil); problems != nil {
		return errors.New(problems[0].Path + " " + problems[0].Message)
	}
	return nil
}
