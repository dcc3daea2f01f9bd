// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRandomChanges: changes lead every client to the same list. It draws lists that change, and
// has clients that saw any earlier one apply what changed since.
func TestRandomChanges(t *testing.T) {
	joined := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		now := map[string]int{}
		version := int64(100)
		last := newTable(version)
		seen := map[int64]map[string]int{} // what a client had at each version
		for range 60 {
			for range r.IntN(4) {
				switch key := "k" + strconv.Itoa(r.IntN(12)); r.IntN(3) {
				case 0:
					delete(now, key)
				default:
					now[key] = r.IntN(3)
				}
			}
			if following := last.next(version+1, rowsFor(now)); following != last {
				version++
				last = following
			}
			seen[version] = maps.Clone(now)
			for from, had := range seen {
				if from < last.since {
					continue
				}
				joined++
				got := maps.Clone(had)
				changed, removed := last.changes(from)
				for _, text := range changed {
					var row struct {
						Key   string
						Value int
					}
					if err := json.Unmarshal(text, &row); err != nil {
						t.Fatal(err)
					}
					got[row.Key] = row.Value
				}
				for _, key := range removed {
					delete(got, key)
				}
				if diff := cmp.Diff(now, got); diff != "" {
					t.Fatalf("seed %d, from version %d to %d (-list,+client):\n%s", seed, from, version, diff)
				}
				if from == version && len(changed)+len(removed) > 0 {
					t.Fatalf("seed %d: the same version differs by %s and %v", seed, changed, removed)
				}
			}
		}
	}
	if joined < 10_000 {
		t.Errorf("only %d joins", joined)
	}
}

func rowsFor(values map[string]int) []row {
	var out []row
	for key := range 12 {
		name := "k" + strconv.Itoa(key)
		if v, ok := values[name]; ok {
			out = append(out, row{key: name, json: fmt.Appendf(nil, `{"key":%q,"value":%d}`, name, v)})
		}
	}
	return out
}

// TestRemovedRows: removed rows are forgotten in time: what is kept of them is bounded, and who saw
// too little must begin anew.
func TestRemovedRows(t *testing.T) {
	last := newTable(1)
	for version := int64(2); version < maxRemoved+500; version++ {
		last = last.next(version, []row{{key: strconv.FormatInt(version, 10), json: []byte("1")}})
	}
	if len(last.removed) != maxRemoved {
		t.Errorf("%d removals are kept, want %d", len(last.removed), maxRemoved)
	}
	oldest := last.removed[0].at
	if last.since >= oldest || last.since < oldest-1 {
		t.Errorf("changes can be told since version %d, and the oldest removal is of %d", last.since, oldest)
	}
}

// TestLongEvent: a long event is not sent. The viewer fetches everything instead.
func TestLongEvent(t *testing.T) {
	for size, want := range map[int]bool{10: true, maxEvent: false} {
		e := event{"nodes", nodesEvent{Changed: []json.RawMessage{json.RawMessage(`"` + strings.Repeat("x", size) + `"`)}}}
		if _, ok, err := frames([]event{e}, 1, 2); ok != want || err != nil {
			t.Errorf("%d bytes are sent: %t, %v; want %t", size, ok, err, want)
		}
	}
}
