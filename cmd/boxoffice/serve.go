package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"boxoffice/internal/server"
)

// configFile is the flag of every command that runs a part of the service.
type configFile struct {
	Config string `required:"" type:"existingfile" placeholder:"FILE" help:"The configuration file; boxoffice config prints one."`
}

// settling is the flags of the commands that settle payments.
type settling struct {
	configFile
	LeaveUnfollowed bool `help:"Start although payments of another chain, or in transactions of ours, are not decided and will not be followed."`
}

type serveCmd struct{ settling }

func (c *serveCmd) Run(ctx context.Context, std *streams) error {
	config, err := server.Load(c.Config)
	if err != nil {
		return err
	}
	var key *ecdsa.PrivateKey
	if config.Settlement.Via == server.ViaKey {
		if key, err = config.SettlementKey(); err != nil {
			return err
		}
	}
	options := server.Options{Config: config, Key: key, LeaveUnfollowed: c.LeaveUnfollowed}
	return serve(ctx, std, options, server.New)
}

type facilitatorCmd struct{ settling }

func (c *facilitatorCmd) Run(ctx context.Context, std *streams) error {
	config, err := server.LoadFacilitator(c.Config)
	if err != nil {
		return err
	}
	key, err := config.SettlementKey()
	if err != nil {
		return err
	}
	options := server.Options{Config: config, Key: key, LeaveUnfollowed: c.LeaveUnfollowed}
	return serve(ctx, std, options, server.NewFacilitator)
}

type workerCmd struct{ configFile }

func (c *workerCmd) Run(ctx context.Context, std *streams) error {
	config, err := server.Load(c.Config)
	if err != nil {
		return err
	}
	return serve(ctx, std, server.Options{Config: config}, server.NewWorker)
}

// serve opens a part of the service and runs it until ctx ends.
func serve[S interface {
	Run(context.Context) error
	Close() error
}](
	ctx context.Context, std *streams, options server.Options,
	open func(context.Context, server.Options) (S, error),
) (err error) {
	if options.Log, err = newLog(options.Config.Log, std.err); err != nil {
		return err
	}
	service, err := open(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	return service.Run(ctx)
}

func newLog(config server.LogConfig, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(config.Level)); err != nil {
		return nil, fmt.Errorf("log.level must be debug, info, warn or error, not %q", config.Level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch config.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log.format must be text or json, not %q", config.Format)
}

type configCmd struct{}

func (c *configCmd) Run(std *streams) error {
	document, err := server.Sample()
	if err != nil {
		return err
	}
	_, err = std.out.Write(document)
	return err
}
