package server

import (
	"cmp"
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

// FacilitatorConfig says what is settled for other x402 servers. The token that
// callers need is read from BOXOFFICE_FACILITATOR_TOKEN in the environment; if that is
// empty, everybody may call.
type FacilitatorConfig struct {
	Listen     string           `toml:"listen" comment:"The address of /verify, /settle and /supported. Callers need the bearer token in BOXOFFICE_FACILITATOR_TOKEN; if that\nis empty, everybody who reaches the address can spend the gas of this service."`
	Assets     []common.Address `toml:"assets" comment:"The ERC-20 tokens that are settled, at least one. List only tokens whose code you trust.\nsettlement.gas_per_settle limits the gas of a payment, settlement.max_fee_per_gas its price."`
	Recipients []common.Address `toml:"recipients" comment:"The addresses that may be paid. Empty: all."`
	Wait       Duration         `toml:"wait" comment:"How long /settle waits for the outcome before it answers settlement_pending."`
	TellOnce   bool             `toml:"tell_once" comment:"false: every call with the same payload gets the same outcome. true: only one call learns that a payment is settled,\nand learns it again if it repeats its Idempotency-Key. Choose true if servers settle here that keep no record of the\npayments they have served, as those of the official SDKs do not: they would serve one payment several times."`
	Rate       RateConfig       `toml:"rate" comment:"For each IPv4 address, and for each /64 network of IPv6 addresses."`
}

// LoadFacilitator reads the configuration file of a process that settles for other
// servers and sells nothing.
func LoadFacilitator(file string) (Config, error) { return load(file, (*Config).checkFacilitator) }

func (c *Config) checkFacilitator() error {
	switch {
	case c.Settlement.Via != ViaKey:
		return errors.New("settlement.via must be 'key': a facilitator does not settle through another one")
	case len(c.Facilitator.Assets) == 0:
		return errors.New("facilitator.assets is required")
	}
	return cmp.Or(positive("facilitator.wait", c.Facilitator.Wait), c.Facilitator.Rate.check("facilitator.rate"),
		c.checkSettling())
}

// NewFacilitator returns a server that settles for other x402 servers. It may use the
// database and the settlement key of a running service; payments of both then share
// transactions.
func NewFacilitator(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, options, (*Server).openFacilitator)
}

func (s *Server) openFacilitator(ctx context.Context) (err error) {
	if s.store, err = sqlite.Open(ctx, sqlite.Config{Path: s.Store.Path}); err != nil {
		return err
	}
	if err := s.checkFollowed(ctx); err != nil {
		return err
	}
	if err := s.dialChain(ctx, s.Facilitator.Assets[0]); err != nil {
		return fmt.Errorf("facilitator: %w", err)
	}
	settling := facilitator.New(facilitator.Config{
		ChainID: s.Chain.ID, Store: s.store,
		Verifier: payment.NewVerifier(payment.VerifierConfig{
			Standings: s.standings(), Pending: s.store, Now: s.Now,
			Ready: func() error { return s.settler.Ready() },
		}),
		Signer: crypto.PubkeyToAddress(s.Key.PublicKey),
		Assets: s.Facilitator.Assets, Recipients: s.Facilitator.Recipients, Wait: time.Duration(s.Facilitator.Wait),
		TellOnce: s.Facilitator.TellOnce,
		Accepted: func() { s.settler.Wake() }, Now: s.Now, Log: s.Log,
	})
	s.openSettlement(settling.Decided)
	s.handler = httpapi.NewFacilitator(httpapi.FacilitatorConfig{
		Facilitator: settling, Token: os.Getenv("BOXOFFICE_FACILITATOR_TOKEN"),
		PerAddress:     ratelimit.Rate(s.Facilitator.Rate),
		TrustedProxies: s.Limits.TrustedProxies, Log: s.Log, Now: s.Now,
	})
	return s.listen(s.Facilitator.Listen)
}
