// SPDX-License-Identifier: Apache-2.0

package cordons

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Table keeps the cordoned nodes and the pods in flight of a process. Make one with New.
type Table struct {
	clock          clock.PassiveClock
	requestTimeout time.Duration

	cordoned atomic.Int32 // number of cordoned nodes, for Filter, which checks every node

	mu    sync.Mutex
	nodes map[string]*node // those with a cordon or with pods in flight
}

// node is the state of one node. The caller holds Table.mu.
type node struct {
	cordoned bool
	token    string // of the cordon; empty if it cannot be read
	pods     map[types.UID]flight
}

// flight is a pod in flight to a node.
type flight struct {
	name string    // namespace/name
	ends time.Time // zero while its attempt is in progress; else the time after which no write of it can be carried out
}

// New returns an empty table. requestTimeout is how long the API server may still carry out a write that
// the client gave up.
func New(clk clock.PassiveClock, requestTimeout time.Duration) *Table {
	return &Table{clock: clk, requestTimeout: requestTimeout, nodes: map[string]*node{}}
}

// See records a node from the informer.
func (t *Table) See(n *v1.Node) {
	text, cordoned := n.Annotations[poolv1alpha1.AnnotationDraining]
	token := ""
	if _, err := time.Parse(time.RFC3339, text); err == nil {
		token = text
	}
	t.set(n.Name, cordoned, token)
}

// Remove records that a node is gone.
func (t *Table) Remove(name string) { t.set(name, false, "") }

func (t *Table) set(name string, cordoned bool, token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[name]
	if n == nil {
		if !cordoned {
			return
		}
		n = &node{pods: map[types.UID]flight{}}
		t.nodes[name] = n
	}
	switch {
	case cordoned && !n.cordoned:
		t.cordoned.Add(1)
	case !cordoned && n.cordoned:
		t.cordoned.Add(-1)
	}
	n.cordoned, n.token = cordoned, token
	t.prune(name, n)
}

// prune removes flights that are over, and the node if it has no entry left. The caller holds t.mu.
func (t *Table) prune(name string, n *node) {
	now := t.clock.Now()
	for uid, f := range n.pods {
		if !f.ends.IsZero() && !now.Before(f.ends) {
			delete(n.pods, uid)
		}
	}
	if !n.cordoned && len(n.pods) == 0 {
		delete(t.nodes, name)
	}
}

// Cordoned reports whether a node takes no pods with devices.
func (t *Table) Cordoned(name string) bool {
	if t.cordoned.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[name]
	return n != nil && n.cordoned
}

// Assume puts a pod in flight to a node, and returns false if the node is cordoned.
func (t *Table) Assume(pod *v1.Pod, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.nodes[name]; n != nil {
		if n.cordoned {
			return false
		}
		t.prune(name, n)
	}
	n := t.nodes[name]
	if n == nil {
		n = &node{pods: map[types.UID]flight{}}
		t.nodes[name] = n
	}
	n.pods[pod.UID] = flight{name: pod.Namespace + "/" + pod.Name}
	return true
}

// Bound ends the flight of a pod whose Binding was carried out.
func (t *Table) Bound(uid types.UID, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.nodes[name]; n != nil {
		delete(n.pods, uid)
		t.prune(name, n)
	}
}

// Forget ends the flight of a pod whose attempt failed, once no write of it can be carried out.
func (t *Table) Forget(uid types.UID, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[name]
	if n == nil {
		return
	}
	if f, ok := n.pods[uid]; ok && f.ends.IsZero() {
		f.ends = t.clock.Now().Add(t.requestTimeout)
		n.pods[uid] = f
	}
	t.prune(name, n)
}

// Word is this process's answer to a cordon.
type Word struct {
	Node, Token string
	InFlight    []string // namespace/name of the pods in flight, in order
}

// Words returns a Word for each cordon that can be read, by node.
func (t *Table) Words() []Word {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Word
	for name, n := range t.nodes {
		t.prune(name, n)
		if !n.cordoned || n.token == "" {
			continue
		}
		w := Word{Node: name, Token: n.token}
		for _, f := range n.pods {
			w.InFlight = append(w.InFlight, f.name)
		}
		slices.Sort(w.InFlight)
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Word) int { return cmp.Compare(a.Node, b.Node) })
	return out
}
