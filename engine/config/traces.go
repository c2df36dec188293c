package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"

	"golang.org/x/net/http/httpguts"
)

// Traces configures the OpenTelemetry traces of batches; without an endpoint nothing is traced.
type Traces struct {
	Endpoint string            // URL of an OTLP receiver over HTTP
	Sample   float64           // share of the batches that are traced, up to 1; 0 for the default
	Headers  map[string]string // of every request to the receiver
	origin
}

// traceKeys are the keys of traces.
type traceKeys struct {
	Endpoint string            `yaml:"endpoint" default:"(none)" example:"http://127.0.0.1:4318" help:"URL of an OTLP receiver over HTTP; /v1/traces follows it unless it has a path"`
	Sample   string            `yaml:"sample" kind:"percentage" default:"1%" example:"100%" help:"share of the batches that are traced, such as 0.1%"`
	Headers  map[string]string `yaml:"headers,secret" example:"{Authorization: \"${OTLP_TOKEN}\"}" help:"headers of every request to the receiver"`
}

// DefaultTraceSample is the share of batches that are traced unless the configuration sets one.
const DefaultTraceSample = 0.01

func (t *Traces) validate() error {
	switch {
	case !(t.Sample >= 0 && t.Sample <= 1):
		return errors.New("sample must be above 0 and at most 1")
	case t.Endpoint == "":
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(t.Headers[name]) {
			return fmt.Errorf("the header %q has a name or a value that HTTP does not allow", name)
		}
	}
	_, err := t.URL()
	return err
}

// URL returns the address that spans are posted to.
func (t *Traces) URL() (*url.URL, error) {
	u, err := url.Parse(t.Endpoint)
	switch {
	case err != nil:
		return nil, errors.New("endpoint must be a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("endpoint must be an http:// or https:// URL")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u, nil
}

// readTraces reads the block traces.
func (d *document) readTraces(root *node, c *Config) {
	e := root.get("traces")
	c.Traces.origin = d.originOf(root, "traces")
	if e == nil {
		return
	}
	var keys traceKeys
	faults := len(d.faults)
	d.decode(e.value, reflect.ValueOf(&keys).Elem(), "traces", false)
	c.Traces.Endpoint, c.Traces.Headers = keys.Endpoint, keys.Headers
	c.Traces.Sample = d.readSample(e.value, keys.Sample)
	if err := c.Traces.validate(); err != nil && len(d.faults) == faults {
		d.addFault(e.value.at, "for example: traces: {endpoint: http://127.0.0.1:4318, sample: 1%}", "traces: %v", err)
	}
}
