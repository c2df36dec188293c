package main

import (
	"context"
	"errors"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/config"
	"github.com/perigeedb/perigee/script/loader"
)

// configFlags say where the configuration is.
type configFlags struct {
	Config string   `arg:"" help:"Configuration file, or its address: https://…, s3://bucket/key."`
	Allow  []string `placeholder:"HOST" sep:"none" help:"Host that configuration and code may come from, besides those the configuration allows. May be repeated."`
}

// load reads the configuration, and says where paths of code in it start. With
// faults in it, it returns them and what could be read.
func (f configFlags) load(ctx context.Context, c *console) (conf *config.Config, base string, err error) {
	if !loader.IsAddress(f.Config) {
		conf, err = config.Load(f.Config, known(), c.lookup)
		if conf == nil {
			return nil, "", err
		}
		return conf, conf.Folder, err
	}
	origin, err := loader.Locate(f.Config, "", "")
	if err != nil {
		return nil, "", usage(err.Error())
	}
	from, err := loader.New(loader.Config{Allow: f.Allow, Lookup: c.lookup})
	if err != nil {
		return nil, "", usage(err.Error())
	}
	defer from.Close()
	text, err := from.Load(ctx, origin, "")
	if err != nil {
		return nil, "", refusedHost(err)
	}
	conf, err = config.Parse(origin.String(), string(text.Bytes), known(), c.lookup)
	return conf, origin.Base(), err
}

// refusedHost says how a host is allowed where no configuration can say so yet.
func refusedHost(err error) error {
	var refused *loader.Refused
	if errors.As(err, &refused) {
		return event.WithHint(err, "if what is there may run here, allow it: --allow "+refused.Host)
	}
	return err
}
