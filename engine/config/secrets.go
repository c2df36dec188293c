package config

import (
	"regexp"
	"slices"
	"strings"
)

// telling matches the names of keys and variables whose values are secrets.
const telling = `(?i:password|passwd|passphrase|secret|token|credential|authorization|api[_-]?key|access[_-]?key)`

var tellingName = regexp.MustCompile(telling)

func isTelling(name string) bool { return tellingName.MatchString(name) }

// secretPatterns match secrets: the literal value of a key with a telling name, also in a list
// or a mapping, where it is a mistake, and a password in a URL, which may have a / or an @ that
// should be escaped. They search the text, because errors quote invalid YAML too.
var secretPatterns = []*regexp.Regexp{
	regexp.MustCompile(`["']?[\w-]*` + telling + `[\w-]*["']?[ \t]*:[ \t]*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|([^\s"'{\[,#}][^,#}\n]*))`),
	regexp.MustCompile(`["']?[\w-]*` + telling + `[\w-]*["']?[ \t]*:\s*(?:\[|\{|-[ \t])[ \t]*([^\]}\n#]{3,})`),
	regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@"']*:([^@/\s"']+)@`),
	regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@"']*:([^\s"']+)@`),
}

const maskedSecret = "(secret)"

// secretsIn returns the literal values of secrets in a text, the longest first. Variables
// are not secrets, because errors quote only their names.
func secretsIn(text string) (secrets []string) {
	for _, pattern := range secretPatterns {
		for _, groups := range pattern.FindAllStringSubmatch(text, -1) {
			for _, value := range groups[1:] {
				if value = strings.TrimSpace(value); value != "" && !strings.Contains(value, "${") {
					secrets = append(secrets, value)
				}
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(secrets)
}

// shortSecret is the length of secrets that are masked only as whole words: they are also part
// of other words.
const shortSecret = 4

// mask replaces the secrets of the document in a text.
func (d *document) mask(text string) string {
	for _, secret := range d.secrets {
		if len(secret) >= shortSecret {
			text = strings.ReplaceAll(text, secret, maskedSecret)
			continue
		}
		word := regexp.MustCompile(`(^|[^\pL\pN])` + regexp.QuoteMeta(secret) + `($|[^\pL\pN])`)
		for range 2 { // the second time for words that share a separator
			text = word.ReplaceAllString(text, "${1}"+maskedSecret+"${2}")
		}
	}
	return text
}
