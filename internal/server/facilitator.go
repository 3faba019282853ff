package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"boxoffice/internal/facilitator"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/internal/payment"
	"boxoffice/internal/store/sqlite"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// FacilitatorConfig says what is settled for other x402 servers. Who may submit
// is said in the environment: BOXOFFICE_FACILITATOR_TOKEN, a bearer token; if it
// is empty, everybody may.
type FacilitatorConfig struct {
	Listen     string           `toml:"listen" comment:"Address of /verify, /settle and /supported. BOXOFFICE_FACILITATOR_TOKEN in the environment is the bearer token\nthat callers need; without it everybody who reaches the address spends this service's gas."`
	Assets     []common.Address `toml:"assets" comment:"The ERC-20 tokens that are settled; at least one. Name only tokens whose code you trust:\nsettlement.gas_per_settle bounds the gas of a payment, settlement.max_fee_per_gas its price."`
	Recipients []common.Address `toml:"recipients" comment:"Who may be paid. Empty: everybody."`
	Wait       Duration         `toml:"wait" comment:"How long /settle waits for the outcome before it answers settlement_pending."`
	TellOnce   bool             `toml:"tell_once" comment:"false: the same payload gets the same outcome however often it is sent. true: one call alone is told that a payment\nis settled, and told again if it repeats its Idempotency-Key. Say true where servers settle here that keep no record\nof what they served, as those of the official SDKs: one payment sent many times at once may else be served as often."`
	Rate       RateConfig       `toml:"rate" comment:"For each client address; IPv6 by /64."`
}

// LoadFacilitator reads a configuration file as Load does, for a process that
// settles for other servers and sells nothing.
func LoadFacilitator(file string) (Config, error) { return load(file, (*Config).checkFacilitator) }

func (c *Config) checkFacilitator() error {
	switch {
	case c.Settlement.Via != ViaKey:
		return errors.New("settlement.via must be 'key': a facilitator settles by itself")
	case len(c.Facilitator.Assets) == 0:
		return errors.New("facilitator.assets is required")
	case c.Facilitator.Wait <= 0:
		return errors.New("facilitator.wait must be above 0")
	}
	return errors.Join(c.Facilitator.Rate.check("facilitator.rate"), c.checkSettling())
}

// NewFacilitator returns a server that settles for other x402 servers. It may
// share the database and the settlement key of a service; their payments then
// share transactions.
func NewFacilitator(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, options, (*Server).openFacilitator)
}

func (s *Server) openFacilitator(ctx context.Context) (err error) {
	if s.store, err = sqlite.Open(ctx, sqlite.Config{Path: s.Store.Path}); err != nil {
		return err
	}
	if err := s.dialChain(ctx, s.Facilitator.Assets[0]); err != nil {
		return fmt.Errorf("facilitator: %w", err)
	}
	settling := facilitator.New(facilitator.Config{
		ChainID: s.Chain.ID, Store: s.store,
		Verifier: payment.NewVerifier(payment.VerifierConfig{
			Standings: s.standings(), Commitments: s.store, Now: s.Now,
			Ready: func() error { return s.settler.Ready() },
		}),
		Signer: crypto.PubkeyToAddress(s.Key.PublicKey),
		Assets: s.Facilitator.Assets, Recipients: s.Facilitator.Recipients, Wait: time.Duration(s.Facilitator.Wait),
		TellOnce: s.Facilitator.TellOnce,
		Accepted: func() { s.settler.Wake() }, Now: s.Now, Log: s.Log,
	})
	s.openSettlement(settling.Decided)
	s.handler = httpapi.NewFacilitator(httpapi.FacilitatorConfig{
		Facilitator: settling, Token: os.Getenv("BOXOFFICE_FACILITATOR_TOKEN"), PerAddress: ratelimit.Rate(s.Facilitator.Rate),
		TrustedProxies: s.Limits.TrustedProxies, Log: s.Log, Now: s.Now,
	})
	return s.listen(s.Facilitator.Listen)
}
