package spool

import "time"

// known is a key and the receipt it stands for.
type known struct {
	Key   string `json:"key"`
	Sum   uint64 `json:"sum"`
	First uint64 `json:"first"`
	Count uint64 `json:"count"`
	When  int64  `json:"when"` // seconds since 1970

	on *commit // that is writing it; nil once it is on disk
}

// keys are those that the spool remembers.
type keys struct {
	window time.Duration
	max    int
	known  map[string]known
	swept  time.Time
}

func (k *keys) find(key string, now time.Time) (known, bool) {
	found, ok := k.known[key]
	if !ok || key == "" {
		return known{}, false
	}
	if found.on == nil && k.over(found.When, now) {
		delete(k.known, key)
		return known{}, false
	}
	return found, true
}

func (k *keys) over(when int64, now time.Time) bool {
	return now.Sub(time.Unix(when, 0)) > k.window
}

// room tells whether one more key can be remembered.
func (k *keys) room(key string) bool {
	if key == "" || len(k.known) < k.max {
		return true
	}
	k.sweep(time.Now())
	return len(k.known) < k.max
}

// sweep forgets what is over, at most once a second: it looks at every key.
func (k *keys) sweep(now time.Time) {
	if now.Sub(k.swept) < time.Second {
		return
	}
	k.swept = now
	for key, v := range k.known {
		if v.on == nil && k.over(v.When, now) {
			delete(k.known, key)
		}
	}
}

// settle says that the keys of a commit are on disk, or never will be.
func (k *keys) settle(c *commit, written bool) {
	for _, key := range c.keys {
		if !written {
			delete(k.known, key)
			continue
		}
		v := k.known[key]
		v.on = nil
		k.known[key] = v
	}
}

// of returns the keys of the positions [first, end).
func (k *keys) of(first, end uint64) []known {
	var all []known
	for _, v := range k.known {
		if v.First >= first && v.First < end {
			all = append(all, v)
		}
	}
	return all
}
