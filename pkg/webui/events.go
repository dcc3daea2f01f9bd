// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// maxEvent bounds the data of one event of the stream, in bytes. For more, a viewer is told to fetch all
// documents again, which are compressed.
const maxEvent = 1 << 20

// nodesEvent and workloadsEvent are the changes of the lists.
type nodesEvent struct {
	Version int64             `json:"version"`
	Moment  time.Time         `json:"moment"`
	Supply  json.RawMessage   `json:"supply"`
	Changed []json.RawMessage `json:"changed"`
	Removed []string          `json:"removed"`
}

type workloadsEvent struct {
	Version int64             `json:"version"`
	Counts  json.RawMessage   `json:"counts"`
	Changed []json.RawMessage `json:"changed"`
	Removed []string          `json:"removed"`
}

type versionEvent struct {
	Version int64      `json:"version"`
	Moment  *time.Time `json:"moment,omitempty"`
}

type byeEvent struct {
	Reason string `json:"reason"`
}

// event is one event of the stream.
type event struct {
	name string
	data any
}

// joins reports whether the changes after a version are known to this state.
func (st *state) joins(after int64) bool {
	return after <= st.version && after >= st.nodes.since && after >= st.workloads.since && st.head.at <= after
}

// hello returns the event with the version after which changes follow.
func (st *state) hello(version int64) event {
	moment := st.cluster.Moment
	return event{"hello", versionEvent{version, &moment}}
}

// after returns the events for a viewer that has seen a version that the state joins.
func (st *state) after(seen int64) []event {
	var out []event
	if changed, removed := st.nodes.changes(seen); len(changed)+len(removed) > 0 || st.supply.at > seen {
		out = append(out, event{"nodes", nodesEvent{st.version, st.cluster.Moment, st.supply.json, changed, removed}})
	}
	if changed, removed := st.workloads.changes(seen); len(changed)+len(removed) > 0 || st.counts.at > seen {
		out = append(out, event{"workloads", workloadsEvent{st.version, st.counts.json, changed, removed}})
	}
	if st.gangs.at > seen {
		out = append(out, event{"gangs", versionEvent{Version: st.version}})
	}
	if st.pools > seen {
		out = append(out, event{"pools", versionEvent{Version: st.version}})
	}
	return out
}

// frames encodes the events between two versions. Only the last one has the new version as its id: a
// viewer that loses the connection between them rejoins at the old one. ok is false if one is too long.
func frames(events []event, seen, version int64) (out []byte, ok bool, err error) {
	var b bytes.Buffer
	for i, e := range events {
		id := seen
		if i == len(events)-1 {
			id = version
		}
		data, err := json.Marshal(e.data)
		if err != nil {
			return nil, false, fmt.Errorf("encode event %s: %w", e.name, err)
		}
		if len(data) > maxEvent {
			return nil, false, nil
		}
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", id, e.name, data)
	}
	return b.Bytes(), true, nil
}
