package generate

import (
	"strconv"
	"time"
)

const (
	// A million events span a day, so that a group by hour has events in each.
	interval = 86                // milliseconds between two events
	epoch    = 1_767_225_600_000 // 2026-01-01T00:00:00Z, in milliseconds

	perMillion     = 1_000_000
	badPerMillion  = 17     // have an email without @, which the example script rejects
	spamPerMillion = 15_000 // are spam, which the example script drops
)

// eventNames and their shares per million.
var eventNames = [...]struct {
	name  string
	share uint64
}{
	{"spam", spamPerMillion}, {"bounce", 35_000}, {"click", 80_000}, {"open", 250_000}, {"sent", 620_000},
}

var (
	firstNames = [...]string{"ada", "bela", "carla", "dmitri", "elena", "farid", "grace", "hiro", "ines", "jonas", "kavya", "liam", "mina", "noor", "olga", "pavel"}
	lastNames  = [...]string{"abel", "brandt", "costa", "dvorak", "endo", "fischer", "gupta", "haas", "ito", "jansen", "kumar", "lopez", "meyer", "novak", "okafor", "patel"}
	domains    = [...]string{"example.com", "example.org", "example.net", "mail.example.com", "post.example.org", "inbox.example.net", "corp.example.com", "uni.example.org"}
	topics     = [...]string{"welcome", "newsletter", "spring-sale", "invoice", "reminder", "digest", "survey", "winback"}
	agents     = [...]string{
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) Gecko/20100101",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X)",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
	}
	devices = [...]string{"desktop", "phone", "tablet", "unknown"}
)

// Append appends the event at position i as a JSON object of 250 to 400 bytes.
// It depends on nothing but seed and i; its id is i+1. About 17 in a million
// have an email without @, and 1.5 in a hundred are spam.
func Append(dst []byte, seed, i uint64) []byte {
	d := dice{state: seed*0x9e3779b97f4a7c15 ^ i*0xd1342543de82ef95}
	name := chooseName(d.roll(perMillion))
	bad := d.roll(perMillion) < badPerMillion && name != "spam"
	topic, campaign := topics[d.roll(uint64(len(topics)))], d.roll(40)+1

	dst = strconv.AppendUint(append(dst, `{"id":`...), i+1, 10)
	dst = append(append(dst, `,"event_name":"`...), name...)
	dst = appendEmail(append(dst, `","email":"`...), &d, bad)
	dst = appendCampaign(append(dst, `","campaign":"`...), topic, campaign)
	dst = appendTime(append(dst, `","time":"`...), epoch+i*interval+d.roll(interval))
	dst = appendIP(append(dst, `","ip":"`...), &d)
	dst = append(append(dst, `","user_agent":"`...), agents[d.roll(uint64(len(agents)))]...)
	dst = appendURL(append(dst, `","url":"`...), &d, topic, campaign)
	dst = appendMeta(append(dst, `","meta":`...), &d)
	return append(dst, '}')
}

func chooseName(roll uint64) string {
	for _, n := range eventNames {
		if roll < n.share {
			return n.name
		}
		roll -= n.share
	}
	panic("generate: the shares do not add up to a million")
}

func appendEmail(dst []byte, d *dice, bad bool) []byte {
	dst = append(dst, firstNames[d.roll(uint64(len(firstNames)))]...)
	dst = append(dst, '.')
	dst = append(dst, lastNames[d.roll(uint64(len(lastNames)))]...)
	dst = strconv.AppendUint(dst, d.roll(1000), 10)
	if bad {
		return append(dst, "(at)example.com"...)
	}
	dst = append(dst, '@')
	return append(dst, domains[d.roll(uint64(len(domains)))]...)
}

func appendCampaign(dst []byte, topic string, campaign uint64) []byte {
	return strconv.AppendUint(append(append(dst, topic...), '-'), campaign, 10)
}

func appendIP(dst []byte, d *dice) []byte {
	// From 198.18.0.0/15, which is reserved for benchmarks.
	dst = append(dst, "198.1"...)
	dst = append(dst, '8'+byte(d.roll(2)), '.')
	dst = strconv.AppendUint(dst, d.roll(256), 10)
	return strconv.AppendUint(append(dst, '.'), d.roll(256), 10)
}

func appendURL(dst []byte, d *dice, topic string, campaign uint64) []byte {
	dst = append(append(dst, "https://links.example.com/"...), topic...)
	dst = strconv.AppendUint(append(dst, "/c"...), campaign, 10)
	return strconv.AppendUint(append(dst, "?r="...), d.next()>>32, 36)
}

func appendMeta(dst []byte, d *dice) []byte {
	dst = strconv.AppendUint(append(dst, `{"attempt":`...), d.roll(3)+1, 10)
	dst = append(append(dst, `,"device":"`...), devices[d.roll(uint64(len(devices)))]...)
	dst = strconv.AppendUint(append(dst, `","score":0.`...), 1+d.roll(99), 10)
	dst = append(dst, `,"tags":["a`...)
	dst = strconv.AppendUint(dst, d.roll(10), 10)
	return append(dst, `"]}`...)
}

// appendTime appends milliseconds since 1970 as RFC 3339 in UTC.
func appendTime(dst []byte, ms uint64) []byte {
	t := time.UnixMilli(int64(ms)).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	dst = appendPadded(dst, year, 4)
	dst = appendPadded(append(dst, '-'), int(month), 2)
	dst = appendPadded(append(dst, '-'), day, 2)
	dst = appendPadded(append(dst, 'T'), hour, 2)
	dst = appendPadded(append(dst, ':'), minute, 2)
	dst = appendPadded(append(dst, ':'), second, 2)
	dst = appendPadded(append(dst, '.'), int(ms%1000), 3)
	return append(dst, 'Z')
}

func appendPadded(dst []byte, n, digits int) []byte {
	var b [4]byte
	for i := digits - 1; i >= 0; i-- {
		b[i] = '0' + byte(n%10)
		n /= 10
	}
	return append(dst, b[:digits]...)
}

// dice is the splitmix64 generator. Its state is a counter, so that each event can be
// generated alone.
type dice struct{ state uint64 }

func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// roll returns a number below n, which must be much less than 1<<32.
func (d *dice) roll(n uint64) uint64 { return d.next() >> 32 * n >> 32 }
