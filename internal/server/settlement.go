package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/payment/remote"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// The values of settlement.via.
const (
	ViaKey         = "key"
	ViaFacilitator = "facilitator"
)

// RemoteConfig names the facilitator that settles for this service. The value of the
// Authorization header is read from BOXOFFICE_FACILITATOR_AUTHORIZATION in the
// environment, never from the configuration.
type RemoteConfig struct {
	URL         string   `toml:"url" comment:"The address of the x402 facilitator, without /settle. With settlement.via = 'facilitator' it pays the gas. If\nchain.rpc_url is empty then, its answers decide which payments are settled; otherwise the chain decides.\nBOXOFFICE_FACILITATOR_AUTHORIZATION in the environment is sent as the Authorization header."`
	Timeout     Duration `toml:"timeout" comment:"The timeout of each call. A facilitator answers when the transaction is mined."`
	MaxInFlight int      `toml:"max_in_flight" comment:"The most calls at the same time."`
	Retry       Duration `toml:"retry" comment:"A payment whose outcome is unknown is handed over again after so long, and later after longer pauses."`
}

func (c *SettlementConfig) checkVia() error {
	switch {
	case c.Via == ViaKey:
		return nil
	case c.Via != ViaFacilitator:
		return errors.New("settlement.via must be 'key' or 'facilitator'")
	case c.Facilitator.URL == "":
		return errors.New("settlement.facilitator.url is required with settlement.via = 'facilitator'")
	case !isHTTP(c.Facilitator.URL):
		return errors.New("settlement.facilitator.url must be an http or https address")
	case c.Facilitator.Timeout <= 0, c.Facilitator.Retry <= 0:
		return errors.New("settlement.facilitator.timeout and retry must be above 0")
	case c.Facilitator.MaxInFlight < 1:
		return errors.New("settlement.facilitator.max_in_flight must be at least 1")
	}
	return nil
}

// settlement settles saved payments, with our key or through a facilitator.
type settlement interface {
	Run(ctx context.Context)
	Wake()
	Health() error // why it does not work now, nil if it works
	Ready() error  // why no new payment should be accepted now, nil if payments are accepted
}

// dialChain prepares the connection to the RPC node, if one is configured.
func (s *Server) dialChain(ctx context.Context, asset common.Address) (err error) {
	if s.Chain.RPCURL == "" {
		return nil
	}
	config := s.Config
	config.Payment.Asset = asset
	s.chain, err = dialChain(ctx, config, s.Now)
	return err
}

// DialChain prepares the connection to the RPC node, to deploy the settlement contract.
func DialChain(ctx context.Context, c Config) (*evm.Chain, error) { return dialChain(ctx, c, time.Now) }

func dialChain(ctx context.Context, c Config, now func() time.Time) (*evm.Chain, error) {
	return evm.Dial(ctx, evm.Config{
		RPCURL: c.Chain.RPCURL, ChainID: c.Chain.ID, Asset: c.Payment.Asset,
		RequestTimeout: time.Duration(c.Chain.Timeout), GasPerSettle: c.Settlement.GasPerSettle,
		MaxTxGas: c.Settlement.MaxTxGas,
		MaxFee:   x402.NewUint256(c.Settlement.MaxFeePerGas), Now: now,
	})
}

// standings says how the permits of payments stand: by the chain, or by the
// facilitator where no RPC node is configured.
func (s *Server) standings() payment.Standings {
	if s.chain == nil {
		return remote.Standings{Client: s.facilitatorClient(), Token: s.token(),
			MaxTimeout: time.Duration(s.Payment.MaxTimeout)}
	}
	return checkedStandings{s}
}

func (s *Server) token() x402.Extra {
	return x402.Extra{AssetTransferMethod: x402.MethodPermit2, Name: s.Payment.Name, Version: s.Payment.Version}
}

// facilitatorClient returns the client of the facilitator that settles for us.
func (s *Server) facilitatorClient() *remote.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = s.Settlement.Facilitator.MaxInFlight
	return remote.NewClient(remote.ClientConfig{
		URL: s.Settlement.Facilitator.URL, Authorization: os.Getenv("BOXOFFICE_FACILITATOR_AUTHORIZATION"),
		ChainID: s.Chain.ID, Timeout: time.Duration(s.Settlement.Facilitator.Timeout), Transport: transport,
	})
}

// openSettlement makes the settler that settlement.via selects.
func (s *Server) openSettlement(decided func()) {
	decisions := order.Settlement{Store: s.store, Decided: decided}
	var decider *payment.Decider
	if s.chain != nil {
		decider = payment.NewDecider(payment.DeciderConfig{
			ChainID: s.Chain.ID, Chain: s.chain, Store: s.store, Decisions: decisions, History: s.store,
			Confirmations: s.Chain.Confirmations, ReorgDepth: s.Chain.ReorgDepth,
			ReviewEvery: time.Duration(s.Settlement.Recheck),
			Now:         s.Now, Log: s.Log,
		})
	}
	rounds := payment.LoopConfig{
		Leases: s.store, Holder: string(boxoffice.NewUUID()), LeaseFor: time.Duration(s.Settlement.Lease),
		PollEvery: time.Duration(s.Settlement.Poll), RecheckEvery: time.Duration(s.Settlement.Recheck),
		Now: s.Now, Log: s.Log,
	}
	if s.Settlement.Via == ViaFacilitator {
		s.settler = remote.NewSettler(remote.SettlerConfig{
			ChainID: s.Chain.ID, Client: s.facilitatorClient(),
			Store: s.store, Decisions: decisions, Exposures: s.store,
			Decider: decider, Rounds: rounds,
			MaxInFlight: s.Settlement.Facilitator.MaxInFlight,
			RetryEvery:  time.Duration(s.Settlement.Facilitator.Retry),
		})
		return
	}
	rounds.GatherFor = time.Duration(s.Settlement.Gather)
	s.settler = payment.NewSettler(payment.SettlerConfig{
		Decider: decider, Wallet: s.chain.Wallet(s.Key), Costs: s.store,
		MaxBatch: s.Settlement.MaxBatch, MaxInFlight: s.Settlement.MaxInFlight, MaxTries: s.Settlement.MaxTries,
		BumpAfter: time.Duration(s.Settlement.BumpAfter), Rounds: rounds,
	})
}
