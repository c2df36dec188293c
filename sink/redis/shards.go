package redis

import (
	"hash/fnv"
	"strconv"

	"github.com/perigeedb/perigee/event"
)

// shardOf returns the shard of the documents whose field has this text. Producers in other languages
// can compute it: the FNV-1a hash, 64 bits, of the text of the value (a string without quotes, a
// number as it is spelled), modulo the number of shards.
func shardOf(text string, shards int) int {
	h := fnv.New64a()
	h.Write([]byte(text))
	return int(h.Sum64() % uint64(shards))
}

// shardKey is the key of a shard.
func (s *Sink) shardKey(shard int) string { return s.target + ":" + strconv.Itoa(shard) }

// targets returns the keys of lists and streams.
func (s *Sink) targets() (keys []string) {
	switch {
	case s.kind == "hash":
		return nil
	case s.config.Shards == 0:
		return []string{s.target}
	}
	for i := range s.config.Shards {
		keys = append(keys, s.shardKey(i))
	}
	return keys
}

// A group is the rows that go to one list or stream.
type group struct {
	key  string
	rows []int
}

// groups distributes rows among the lists or streams that they go to.
func (s *Sink) groups(out *event.Output, rows []int) (all []group) {
	if s.config.Shards == 0 {
		if len(rows) == 0 {
			return nil
		}
		return []group{{s.target, rows}}
	}
	shards := map[int]int{} // index in all
	for _, row := range rows {
		text, _ := plain(out.Columns.Vectors[0].Text(row))
		shard := shardOf(text, s.config.Shards)
		at, known := shards[shard]
		if !known {
			at = len(all)
			shards[shard] = at
			all = append(all, group{key: s.shardKey(shard)})
		}
		all[at].rows = append(all[at].rows, row)
	}
	return all
}
