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

type serveCmd struct {
	Config string `required:"" type:"existingfile" placeholder:"FILE" help:"The configuration file; boxoffice config prints one."`
}

func (c *serveCmd) Run(ctx context.Context, std *streams) (err error) {
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
	log, err := newLog(config.Log, std.err)
	if err != nil {
		return err
	}
	service, err := server.New(ctx, server.Options{Config: config, Key: key, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	return service.Run(ctx)
}

type workerCmd struct {
	Config string `required:"" type:"existingfile" placeholder:"FILE" help:"The configuration file of the service, whose store and folders this process shares."`
}

func (c *workerCmd) Run(ctx context.Context, std *streams) (err error) {
	config, err := server.Load(c.Config)
	if err != nil {
		return err
	}
	log, err := newLog(config.Log, std.err)
	if err != nil {
		return err
	}
	worker, err := server.NewWorker(ctx, server.Options{Config: config, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	return worker.Run(ctx)
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
