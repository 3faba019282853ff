package main

import (
	"context"
	"errors"

	"boxoffice/internal/server"
)

type facilitatorCmd struct {
	Config string `required:"" type:"existingfile" placeholder:"FILE" help:"The configuration file; boxoffice config prints one."`
}

func (c *facilitatorCmd) Run(ctx context.Context, std *streams) (err error) {
	config, err := server.LoadFacilitator(c.Config)
	if err != nil {
		return err
	}
	key, err := config.SettlementKey()
	if err != nil {
		return err
	}
	log, err := newLog(config.Log, std.err)
	if err != nil {
		return err
	}
	service, err := server.NewFacilitator(ctx, server.Options{Config: config, Key: key, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	return service.Run(ctx)
}
