package main

import (
	"context"
	"path/filepath"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/script/loader"
)

// configFlags locate the configuration.
type configFlags struct {
	Config string   `arg:"" help:"Configuration file, or its address: https://…, s3://bucket/key."`
	Data   string   `type:"path" placeholder:"DIR" help:"Use this data folder instead of the one in the configuration."`
	Allow  []string `placeholder:"HOST" sep:"none" help:"Allow a host for configuration and code, in addition to the allow list of the configuration. May be repeated."`
}

// Validate implements kong's check of flags.
func (f configFlags) Validate() error {
	if loader.IsAddress(f.Config) {
		if _, err := loader.Locate(f.Config, "", ""); err != nil {
			return err
		}
	}
	_, err := loader.ParseAllow(f.Allow)
	return err
}

// load reads the configuration. If it has faults, load returns them with the readable part;
// assembling that part returns the faults again.
func (f configFlags) load(ctx context.Context, c *console) (*config.Config, error) {
	conf, err := engine.Load(ctx, f.Config, engineOptions(c, f.Allow, nil))
	if conf != nil && f.Data != "" {
		conf.UseData(f.Data)
	}
	return conf, err
}

// dataFlags locate the data folder.
type dataFlags struct {
	Data   string `type:"path" placeholder:"DIR" help:"The engine's data folder (default ./perigee-data; the default of an engine is beside its configuration)."`
	Config string `type:"path" placeholder:"FILE" help:"The engine's configuration, which names the data folder."`
}

// locate returns the data folder, and the configuration if one is named.
func (f dataFlags) locate(c *console) (data string, conf *config.Config, err error) {
	switch {
	case f.Data != "" && f.Config != "":
		return "", nil, usageError("--data and --config both name a data folder: use one of them")
	case f.Data != "":
		return f.Data, nil, nil
	case f.Config != "":
		conf, err := configFlags{Config: f.Config}.load(context.Background(), c)
		if err != nil {
			return "", nil, err
		}
		return conf.Data, conf, nil
	}
	data, err = filepath.Abs(config.DefaultData)
	return data, nil, err
}

// open returns the operations on the data folder. The engine that runs in it performs them,
// or this process if none runs.
func (f dataFlags) open(c *console) (*admin.Admin, error) {
	data, conf, err := f.locate(c)
	if err != nil {
		return nil, err
	}
	var pipelines []admin.Pipeline
	if conf != nil {
		for _, p := range conf.Pipelines {
			pipelines = append(pipelines, admin.Pipeline{Name: p.Name})
		}
	}
	return admin.Open(data, pipelines)
}
