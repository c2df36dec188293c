package config

import "reflect"

// Console configures the web console, which is on the HTTP address.
type Console struct {
	Disabled bool   `yaml:"disabled" example:"true" help:"leave out the web console, which is at /console/ of the http address"`
	Token    string `yaml:"token,secret" example:"${CONSOLE_TOKEN}" help:"token that the console asks for; without one it is on loopback addresses only; write it as ${NAME}"`
}

// readConsole reads the block console.
func (d *document) readConsole(root *node, c *Config) {
	if e := root.get("console"); e != nil {
		d.decode(e.value, reflect.ValueOf(&c.Console).Elem(), "console", false)
	}
}
