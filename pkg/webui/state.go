// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/webui/clusterwatch"
	"github.com/nvtopo/nvtopo/pkg/webui/documents"
)

const (
	// gap is the least time between two states: updates twice a second appear immediate.
	gap = 500 * time.Millisecond
	// oldest is the age at which a state is remade even without a change of objects: graphs go stale by the
	// clock.
	oldest = 10 * time.Second
)

// state is all displayed data of one moment. It is immutable once made.
type state struct {
	version  int64
	made     time.Time
	snapshot *clusterwatch.Snapshot
	view     *clusterview.View

	cluster   *documents.Cluster
	nodes     *table
	supply    encoded
	workloads *table
	counts    encoded
	gangs     encoded
	gangList  []documents.Gang
	pods      []documents.Workload
	// head is the part of the cluster that no event has: viewers with another head fetch all documents
	// again.
	head  encoded
	pools int64 // version at which a pool changed last
	// poolObjects is the version of the pools themselves.
	poolObjects int64

	// clusterAnswer and workloadsAnswer are the documents that every page fetches, made once.
	clusterAnswer, workloadsAnswer func() (*prepared, error)

	// next is closed when there is a later state.
	next chan struct{}
}

// encoded is a part of a document with the version of its last change.
type encoded struct {
	json json.RawMessage
	at   int64
}

// then returns the part unchanged if now is equal to it, otherwise now with its version.
func (e encoded) then(version int64, now json.RawMessage) encoded {
	if string(e.json) == string(now) {
		return e
	}
	return encoded{now, version}
}

// states makes states on request.
type states struct {
	watch *clusterwatch.Watch
	opt   clusterview.Options
	now   func() time.Time

	making sync.Mutex        // held while a state is made
	memo   *clusterview.Memo // guarded by making
	mu     sync.Mutex
	last   *state
}

// current returns the last state; nil if there is none yet.
func (s *states) current() *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// fresh returns a current state, at most gap old if objects changed.
func (s *states) fresh() (*state, error) {
	s.making.Lock()
	defer s.making.Unlock()
	last, now := s.current(), s.now()
	if last != nil {
		age := now.Sub(last.made)
		if age < gap || age < oldest && last.snapshot.Version == s.watch.Version() {
			return last, nil
		}
	}
	next, err := s.make(last, now)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = next
	if last != nil {
		close(last.next)
	}
	return next, nil
}

// make makes the state that follows last. Its version is last's if nothing changed. The first version is
// a time, so that the versions of an earlier server are invalid.
func (s *states) make(last *state, now time.Time) (*state, error) {
	snapshot := s.watch.Snapshot()
	objects := &snapshot.World.Objects
	view := s.memo.Of(objects, s.opt)
	pods, gangs := documents.WorkloadsOf(view, objects), documents.GangsOf(view, objects)
	features := documents.Features{Pools: snapshot.HasPools, Gangs: snapshot.HasGroups || len(gangs) > 0}
	if last == nil {
		start := now.UnixMilli()
		last = &state{version: start - 1, nodes: newTable(start), workloads: newTable(start)}
	}
	version := last.version + 1
	st := &state{
		version: version, made: now, snapshot: snapshot, view: view, gangList: gangs, pods: pods, next: make(chan struct{}),
		cluster: documents.ClusterOf(version, view, features, snapshot.Problems),
	}
	if err := st.encode(last); err != nil {
		return nil, err
	}
	if !st.differs(last) {
		st.version = last.version
		st.cluster.Version = last.version
	}
	st.clusterAnswer = sync.OnceValues(func() (*prepared, error) { return prepare(st.cluster) })
	st.workloadsAnswer = sync.OnceValues(func() (*prepared, error) {
		return prepare(documents.Workloads{Version: st.version, Moment: st.cluster.Moment, Counts: documents.CountsOf(st.pods), Items: st.pods})
	})
	return st, nil
}

// encode encodes the parts, each with the version of its last change.
func (st *state) encode(last *state) error {
	nodes, err := rowsOf(st.cluster.Nodes, func(n *documents.Node) string { return n.Name })
	if err != nil {
		return err
	}
	workloads, err := rowsOf(st.pods, (*documents.Workload).FullName)
	if err != nil {
		return err
	}
	v := st.version
	st.nodes, st.workloads = last.nodes.next(v, nodes), last.workloads.next(v, workloads)
	head := *st.cluster
	for _, p := range []struct {
		into, was *encoded
		value     any
	}{
		{&st.supply, &last.supply, st.cluster.Supply},
		{&st.counts, &last.counts, documents.CountsOf(st.pods)},
		{&st.gangs, &last.gangs, st.gangList},
		{&st.head, &last.head, []any{head.Resource, head.Levels, head.Problems, head.Features}},
	} {
		data, err := json.Marshal(p.value)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		*p.into = p.was.then(v, data)
	}
	st.pools, st.poolObjects = last.pools, st.snapshot.PoolsVersion
	if st.poolObjects != last.poolObjects {
		st.pools = v
	}
	return nil
}

func (st *state) differs(last *state) bool {
	return st.nodes != last.nodes || st.workloads != last.workloads ||
		slices.Max([]int64{st.supply.at, st.counts.at, st.gangs.at, st.head.at, st.pools}) == st.version
}

func rowsOf[T any](all []T, key func(*T) string) ([]row, error) {
	out := make([]row, len(all))
	for i := range all {
		data, err := json.Marshal(&all[i])
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key(&all[i]), err)
		}
		out[i] = row{key: key(&all[i]), json: data}
	}
	return out, nil
}
