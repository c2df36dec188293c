package spool

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/perigeedb/perigee/internal/durable"
)

// A keyRecord is a key and the receipt that it stands for.
type keyRecord struct {
	Key   string `json:"key"`
	Sum   uint64 `json:"sum"`
	First uint64 `json:"first"`
	Count uint64 `json:"count"`
	When  int64  `json:"when"` // seconds since 1970

	sender string // "" for one that was stored before the spool was opened
}

// A keyTable holds the keys that the spool remembers.
type keyTable struct {
	window      time.Duration
	max         int
	maxOfSender int
	byKey       map[string]keyRecord
	ofSender    map[string]int // keys of each sender
	sweptAt     time.Time
}

func (t *keyTable) find(key string, now time.Time) (keyRecord, bool) {
	k, found := t.byKey[key]
	if found && t.expired(k.When, now) {
		t.forget(k)
		return keyRecord{}, false
	}
	return k, found
}

func (t *keyTable) expired(when int64, now time.Time) bool {
	return now.Sub(time.Unix(when, 0)) > t.window
}

// add remembers the key of an entry, if it has one.
func (t *keyTable) add(f *storedEntry) {
	e := &f.entry
	if e.Key == "" {
		return
	}
	t.byKey[e.Key] = keyRecord{Key: e.Key, Sum: e.Sum, First: f.first, Count: uint64(len(e.Ends)), When: f.when.Unix(), sender: e.Sender}
	if e.Sender != "" {
		t.ofSender[e.Sender]++
	}
}

func (t *keyTable) remove(keys []string) {
	for _, key := range keys {
		t.forget(t.byKey[key])
	}
}

func (t *keyTable) forget(k keyRecord) {
	delete(t.byKey, k.Key)
	if k.sender == "" {
		return
	}
	if t.ofSender[k.sender]--; t.ofSender[k.sender] <= 0 {
		delete(t.ofSender, k.sender)
	}
}

// hasRoomFor tells whether one more key of a sender can be remembered.
func (t *keyTable) hasRoomFor(sender, key string, now time.Time) bool {
	if key == "" || t.ofSender[sender] < t.maxOfSender {
		return true
	}
	t.removeExpired(now)
	return t.ofSender[sender] < t.maxOfSender
}

// hasRoom tells whether one more key can be remembered.
func (t *keyTable) hasRoom(key string, now time.Time) bool {
	if key == "" || len(t.byKey) < t.max {
		return true
	}
	t.removeExpired(now)
	return len(t.byKey) < t.max
}

// removeExpired looks at every key, so it does so at most once a second.
func (t *keyTable) removeExpired(now time.Time) {
	if now.Sub(t.sweptAt) < time.Second {
		return
	}
	t.sweptAt = now
	for _, k := range t.byKey {
		if t.expired(k.When, now) {
			t.forget(k)
		}
	}
}

// saveKeys stores the keys of a segment in a file of their own, which outlives the
// segment.
func (s *Spool) saveKeys(seg segment) error {
	var records []keyRecord
	for _, k := range s.keys.byKey {
		if k.First >= seg.first && k.First < seg.end {
			records = append(records, k)
		}
	}
	if len(records) == 0 {
		return nil
	}
	text, err := json.Marshal(records)
	if err != nil {
		return err
	}
	return durable.WriteFile(s.path(seg.first, keysSuffix), text, 0o600)
}

// loadKeys reads the keys of earlier segments, and removes files whose keys have
// all expired.
func (s *Spool) loadKeys() error {
	files, err := s.listFiles(keysSuffix)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, first := range files {
		name := s.path(first, keysSuffix)
		text, err := durable.ReadFile(name)
		if err != nil {
			return err
		}
		var records []keyRecord
		if err := json.Unmarshal(text, &records); err != nil {
			return fmt.Errorf("%s is damaged; delete it to forget which keys were used", name)
		}
		records = slices.DeleteFunc(records, func(k keyRecord) bool { return s.keys.expired(k.When, now) })
		if len(records) == 0 {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
		for _, k := range records {
			s.keys.byKey[k.Key] = k
		}
	}
	return nil
}
