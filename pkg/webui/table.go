// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"bytes"
	"encoding/json"
	"slices"
)

// maxRemoved bounds the recorded removals of rows.
const maxRemoved = 4096

// row is one encoded row of a list, with the version of its last change.
type row struct {
	key  string
	json json.RawMessage
	at   int64
}

// removal is a removed row with the version of its removal.
type removal struct {
	key string
	at  int64
}

// table is a list at one version. It is immutable once made.
type table struct {
	rows    []row
	index   map[string]int
	removed []removal // by version, oldest first
	// since is the oldest version whose later changes are known.
	since int64
}

// newTable returns an empty list; changes since earlier versions are unknown.
func newTable(version int64) *table { return &table{index: map[string]int{}, since: version} }

// next returns the list with these rows, whose at is not set yet. It is the same list if nothing changed.
func (t *table) next(version int64, rows []row) *table {
	out := &table{rows: rows, index: make(map[string]int, len(rows)), removed: slices.Clone(t.removed), since: t.since}
	changed := len(rows) != len(t.rows)
	for i := range rows {
		r := &rows[i]
		out.index[r.key] = i
		was, ok := t.index[r.key]
		if ok && bytes.Equal(t.rows[was].json, r.json) {
			r.at = t.rows[was].at
			changed = changed || was != i
			continue
		}
		r.at, changed = version, true
	}
	if !changed {
		return t
	}
	for i := range t.rows {
		if _, still := out.index[t.rows[i].key]; !still {
			out.removed = append(out.removed, removal{t.rows[i].key, version})
		}
	}
	if over := len(out.removed) - maxRemoved; over > 0 {
		out.since = out.removed[over-1].at
		out.removed = slices.Clone(out.removed[over:])
	}
	return out
}

// changes returns the rows that changed after a version, and the keys of those removed since.
func (t *table) changes(after int64) (changed []json.RawMessage, removed []string) {
	changed, removed = []json.RawMessage{}, []string{}
	for i := range t.rows {
		if t.rows[i].at > after {
			changed = append(changed, t.rows[i].json)
		}
	}
	for _, r := range t.removed {
		if _, again := t.index[r.key]; r.at > after && !again {
			removed = append(removed, r.key)
		}
	}
	slices.Sort(removed)
	return changed, slices.Compact(removed)
}
