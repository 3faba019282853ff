package servertest

import (
	"context"
	"errors"

	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"
)

// Configure returns the default configuration for a service that listens on an address, without an operator's address,
// and is paid in the test token. All requesters of a test have one address, so the limits of rates are out of reach.
func Configure(chain *devchain.Chain, listen string, price x402.Uint256) server.Config {
	config := server.Default()
	config.BaseURL, config.Listen, config.OperatorListen = "http://"+listen, listen, ""
	config.Chain.ID, config.Chain.RPCURL = chain.ChainID().Uint64(), chain.URL()
	config.Payment.Asset, config.Payment.PayTo, config.Payment.Amount = chain.Token(), devchain.PayTo(), price
	config.Payment.Symbol, config.Payment.Version = devchain.TokenSymbol, "1"
	config.Payment.Name = "Boxoffice Test Token"
	config.Limits.PerAddress = server.RateConfig{PerSecond: 1e6, Burst: 1e6}
	config.Limits.PerToken = server.RateConfig{PerSecond: 1e6, Burst: 1e6}
	return config
}

// Service is a service that runs in this process.
type Service struct {
	*server.Server
	stop  context.CancelFunc
	ended chan error
}

// Run starts a service. It runs until Stop, whatever happens to ctx.
func Run(ctx context.Context, options server.Options) (*Service, error) {
	service, err := server.New(ctx, options)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Service{Server: service, stop: stop, ended: make(chan error, 1)}
	go func() { s.ended <- errors.Join(service.Run(running), service.Close()) }()
	return s, nil
}

// Stop ends the service and waits for its end. Close idle connections before: a service that ends waits for connections
// that were opened and never used.
func (s *Service) Stop() error {
	s.stop()
	return <-s.ended
}
