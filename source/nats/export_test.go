package nats

import "github.com/perigeedb/perigee/source"

// Fail makes an error that the client does not recover from the next thing that r receives.
func Fail(r source.Reader, err error) { r.(*reader).err = err }
