package loader

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// pinPrefix precedes the SHA-256 of a text, in hexadecimal, in the fragment of its URL.
const pinPrefix = "sha256="

// parsePin returns the SHA-256 that the fragment of a URL names, or "" if it has none.
func parsePin(fragment string) (string, error) {
	if fragment == "" {
		return "", nil
	}
	pin, found := strings.CutPrefix(fragment, pinPrefix)
	sum, err := hex.DecodeString(pin)
	if !found || err != nil || len(sum) != sha256.Size {
		return "", fmt.Errorf("invalid #%s: use #sha256= and 64 hexadecimal digits, as sha256sum prints them", fragment)
	}
	return strings.ToLower(pin), nil
}

// An unpinnedError refuses a text that anybody on the way could replace.
type unpinnedError struct{ place string }

func (e *unpinnedError) Error() string {
	return fmt.Sprintf("%s is read over plain http and not pinned: anybody on the way could replace it", e.place)
}

// ErrorHint implements event.Hinter.
func (e *unpinnedError) ErrorHint() string {
	return "use https://, or add the text's hash to the URL: #sha256=… (sha256sum prints it)"
}

// leavesMachine reports whether a URL is plain http to another machine.
func leavesMachine(u *url.URL) bool {
	host := canonical(u.Hostname())
	address, err := netip.ParseAddr(host)
	return u.Scheme == "http" && host != "localhost" && (err != nil || !address.Unmap().IsLoopback())
}

// checkPinned returns an error if the text of an origin comes over plain http from another
// machine and has no pin.
func (l *Loader) checkPinned(o Origin) error {
	carrier := o.url
	if o.url != nil && o.url.Scheme == "s3" {
		carrier = l.s3.URL
	}
	if carrier == nil || o.pin != "" || !leavesMachine(carrier) {
		return nil
	}
	return &unpinnedError{o.String()}
}

// checkPin returns an error if a text does not have the SHA-256 that its origin names.
func (o Origin) checkPin(text []byte) error {
	if o.pin == "" {
		return nil
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != o.pin {
		return fmt.Errorf("the text has the SHA-256 %x, and the URL names %s", sum, o.pin)
	}
	return nil
}
