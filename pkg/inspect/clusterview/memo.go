// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// Memo makes one view after the other of a cluster that changes, and works out only those nodes
// anew that changed: what is the same object is told by UID and resource version. Objects without
// a version are always read anew. It must not be used from several goroutines at the same time;
// its views may.
type Memo struct {
	reader *reader
	nodes  map[string]remembered
}

// NewMemo remembers nothing.
func NewMemo() *Memo { return &Memo{reader: newReader()} }

// longestPause is the longest time between two views of which the later one builds on the earlier.
// A Lease counts from when it is seen to be renewed: after a longer pause, one that was renewed in
// the middle of it would count for too long.
const longestPause = 15 * time.Second

// forget forgets the last view if it is too old to build on, or is later.
func (m *Memo) forget(now time.Time) {
	if last := m.reader.o; last != nil && (now.Sub(last.Now) > longestPause || now.Before(last.Now)) {
		m.reader, m.nodes = newReader(), nil
	}
}

// remembered is a node of the last view, with what it was made of.
type remembered struct {
	key  nodeKey
	node *Node
}

// object is one version of an object.
type object struct {
	uid     types.UID
	version string
}

// nodeKey is everything that the view of a node is made of, but for its place in the fabric.
type nodeKey struct {
	options, budgets string
	node, topology   object
	pods             []object
	exporters        bool
	exporter, agent  leaseKey
	known            bool // every object has a version
}

// leaseKey is all that the view shows of an exporter's or agent's Lease.
type leaseKey struct{ fresh, ofNode, present bool }

func (k *nodeKey) equal(o *nodeKey) bool {
	return k.known && o.known && slices.Equal(k.pods, o.pods) && k.options == o.options && k.budgets == o.budgets && k.node == o.node &&
		k.topology == o.topology && k.exporters == o.exporters && k.exporter == o.exporter && k.agent == o.agent
}

// keyOf is the key of a node at the reader's moment.
func (r *reader) keyOf(options, budgets string, n *v1.Node, t *v1alpha1.NodeGPUTopology, pods []*v1.Pod) nodeKey {
	lease := func(prefix string) leaseKey {
		l := r.leases.Get(prefix + n.Name)
		return leaseKey{l.Fresh(r.o.Now), l.Of(n.UID), l.Until() != nil}
	}
	k := nodeKey{
		options: options, budgets: budgets, node: object{n.UID, n.ResourceVersion}, pods: make([]object, len(pods)), exporters: r.exporters,
		exporter: lease(nodelease.ExporterPrefix), agent: lease(nodelease.AgentPrefix),
		known: n.ResourceVersion != "" && (t == nil || t.ResourceVersion != "") && !strings.Contains(budgets, unknownVersion),
	}
	if t != nil {
		k.topology = object{t.UID, t.ResourceVersion}
	}
	for i, p := range pods {
		k.pods[i] = object{p.UID, p.ResourceVersion}
		k.known = k.known && p.ResourceVersion != ""
	}
	return k
}

// unknownVersion stands for an object without a resource version.
const unknownVersion = "?"

// budgetsKey is that of all disruption budgets: any of them may decide about any pod.
func budgetsKey(o *clusterobjects.Objects) string {
	var b strings.Builder
	for i := range o.Budgets {
		p := &o.Budgets[i]
		version := p.ResourceVersion
		if version == "" {
			version = unknownVersion
		}
		b.WriteString(string(p.UID) + "/" + version + " ")
	}
	return b.String()
}

// again is the node of the last view, if it would be the same now. The copy is of this moment.
func (m *Memo) again(key *nodeKey, name string, o *clusterobjects.Objects) (*Node, bool) {
	was, ok := m.nodes[name]
	if !ok || !was.key.equal(key) {
		return nil, false
	}
	node := *was.node
	node.input.Now = o.Now
	return &node, true
}
