// SPDX-License-Identifier: Apache-2.0

package clustertopology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// Node is a node of the cluster with the properties that decide its place in the fabric.
type Node struct {
	Name   string
	Labels map[string]string
	// NoGPUs: a missing label is no problem, for example of a control plane node.
	NoGPUs bool
}

// Kind is the kind of a Problem.
type Kind string

// The kinds of Problem.
const (
	// Invalid: a field of spec is left out, because it cannot be read. No API server with our schema admits
	// such an object.
	Invalid Kind = "Invalid"
	// UnknownDomain: an override or an exclusion is left out, because the domain that it names has no nodes,
	// or nodes of several domains.
	UnknownDomain Kind = "UnknownDomain"
	// NotATree: a node has a label of a level, but none of a level further out.
	NotATree Kind = "NotATree"
	// LabelsMissing: a node with GPUs lacks the label of a level and of all further in.
	LabelsMissing Kind = "LabelsMissing"
)

// Problem is a part of a ClusterTopology or of a node's labels that is left out of the tree.
type Problem struct {
	Kind  Kind
	Level string // empty if it is about no level
	Node  string // empty if it is about no node
	Text  string
}

// String returns the problem with the names of its node and level.
func (p *Problem) String() string {
	return (&fabric.Fault{Node: p.Node, Level: p.Level, Problem: p.Text}).Error()
}

// Tree returns the fabric of a cluster, which has every node and is never nil. Without a
// ClusterTopology it is that of Default. If the levels cannot be used, the tree has none.
func Tree(ct *v1alpha1.ClusterTopology, nodes []Node) (*fabric.Tree, []Problem) {
	s, problems := Spec(ct, nodes)
	tree, faults, err := fabric.NewTree(s)
	if err != nil {
		problems = append(problems, Problem{Kind: Invalid, Text: err.Error()})
		s.Levels, s.Overrides, s.Excluded = nil, nil, nil
		for i := range s.Nodes {
			s.Nodes[i].Path = nil
		}
		if tree, _, err = fabric.NewTree(s); err != nil { // too many nodes
			tree, _, _ = fabric.NewTree(&fabric.Spec{})
		}
		return tree, problems
	}
	for _, f := range faults {
		kind := UnknownDomain
		if f.Node != "" {
			kind = NotATree
		}
		problems = append(problems, Problem{Kind: kind, Level: f.Level, Node: f.Node, Text: f.Problem})
	}
	return tree, problems
}

// Spec returns the input for the tree, in the order of nodes, and the problems of fields and of missing
// labels; the other problems are found when the tree is made.
func Spec(ct *v1alpha1.ClusterTopology, nodes []Node) (*fabric.Spec, []Problem) {
	if ct == nil {
		ct = Default(nodes)
	}
	r := reader{spec: &ct.Spec}
	r.levels()
	r.out.Root = r.link("spec.root", rootLink(ct.Spec.Root), false)
	for i := range ct.Spec.Overrides {
		o := &ct.Spec.Overrides[i]
		r.out.Overrides = append(r.out.Overrides, fabric.Override{
			Level: o.Level, A: o.A, B: o.B, Link: r.link(fmt.Sprintf("spec.overrides[%d]", i), &o.FabricLink, false),
		})
	}
	for _, e := range ct.Spec.Excluded {
		r.out.Excluded = append(r.out.Excluded, fabric.Exclusion{Level: e.Level, Domain: e.Domain, Reason: e.Reason})
	}
	r.nodeBandwidths()
	r.out.Nodes = make([]fabric.NodePath, 0, len(nodes))
	for i := range nodes {
		r.node(&nodes[i])
	}
	return &r.out, r.problems
}

func rootLink(l *v1alpha1.FabricLink) *v1alpha1.FabricLink {
	if l == nil {
		return &v1alpha1.FabricLink{}
	}
	return l
}

// LabelKeys returns the node labels that the tree depends on; without a ClusterTopology those of Default.
func LabelKeys(ct *v1alpha1.ClusterTopology) []string {
	levels := kubernetesLevels()
	if ct != nil {
		levels = ct.Spec.Levels
	}
	var keys []string
	for i := range levels {
		keys = append(keys, levels[i].NodeLabel)
	}
	if ct != nil {
		for i := range ct.Spec.NodeBandwidths {
			if key := ct.Spec.NodeBandwidths[i].NodeLabel; !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// reader holds the state of converting a ClusterTopology.
type reader struct {
	spec       *v1alpha1.ClusterTopologySpec
	out        fabric.Spec
	bandwidths []int64 // of spec.NodeBandwidths, in kB/s; 0 for one that cannot be read
	problems   []Problem
}

func (r *reader) invalid(field, format string, args ...any) {
	r.problems = append(r.problems, Problem{Kind: Invalid, Text: field + ": " + fmt.Sprintf(format, args...)})
}

func (r *reader) levels() {
	for i := range r.spec.Levels {
		l, field := &r.spec.Levels[i], fmt.Sprintf("spec.levels[%d]", i)
		if errs := validation.IsDNS1123Label(l.Name); len(errs) > 0 {
			r.invalid(field+".name", "%q: %s", l.Name, errs[0])
		}
		if errs := validation.IsQualifiedName(l.NodeLabel); len(errs) > 0 {
			r.invalid(field+".nodeLabel", "%q: %s", l.NodeLabel, errs[0])
		}
		r.out.Levels = append(r.out.Levels, fabric.Level{Name: l.Name, Link: r.link(field, &l.FabricLink, i == len(r.spec.Levels)-1)})
	}
}

// node adds the path of one node, and records from which level on it has no label.
func (r *reader) node(n *Node) {
	path, gap, deeper := make([]string, len(r.spec.Levels)), -1, false
	for d := range r.spec.Levels {
		path[d] = n.Labels[r.spec.Levels[d].NodeLabel]
		switch {
		case path[d] == "" && gap < 0:
			gap = d
		case path[d] != "" && gap >= 0:
			deeper = true // fabric.NewTree reports it as NotATree
		}
	}
	if gap >= 0 && !deeper && !n.NoGPUs {
		l := &r.spec.Levels[gap]
		r.problems = append(r.problems, Problem{Kind: LabelsMissing, Level: l.Name, Node: n.Name, Text: "no label " + l.NodeLabel})
	}
	r.out.Nodes = append(r.out.Nodes, fabric.NodePath{Node: n.Name, Path: path, Bandwidth: r.bandwidthOf(n)})
}

// bandwidthOf returns the bound on a node's bandwidth, in kB/s; 0 if none is given.
func (r *reader) bandwidthOf(n *Node) int64 {
	for i := range r.spec.NodeBandwidths {
		b := &r.spec.NodeBandwidths[i]
		if value, ok := n.Labels[b.NodeLabel]; ok && value == b.Value && r.bandwidths[i] > 0 {
			return r.bandwidths[i]
		}
	}
	return 0
}

// nodeBandwidths reads the bounds on nodes' bandwidths. A value that cannot be read is no bound.
func (r *reader) nodeBandwidths() {
	for i := range r.spec.NodeBandwidths {
		b, field := &r.spec.NodeBandwidths[i], fmt.Sprintf("spec.nodeBandwidths[%d]", i)
		if errs := validation.IsQualifiedName(b.NodeLabel); len(errs) > 0 {
			r.invalid(field+".nodeLabel", "%q: %s", b.NodeLabel, errs[0])
		}
		v, _ := r.bandwidth(field, &b.BandwidthGBps)
		r.bandwidths = append(r.bandwidths, v)
	}
}

// bandwidth reads a bandwidth, in kB/s.
func (r *reader) bandwidth(field string, text *intstr.IntOrString) (kBps int64, ok bool) {
	const digits = 6 // kB/s
	if v, ok := decimal(text.String(), digits); ok && v > 0 && v <= maxGBps*1e6 {
		return v, true
	}
	r.invalid(field+".bandwidthGBps", "%q: %s", text.String(), wantedGBps(text.String()))
	return 0, false
}

// wantedGBps returns the correct form of a text that is no number of GB/s: the number, if the text has a
// unit, or both numbers that it may mean.
func wantedGBps(text string) string {
	if kBps, err := nvtopo.ParseBandwidth(text); err == nil && strings.Trim(text, "0123456789.") != "" {
		return "want a number of GB/s without a unit: write " + inGBps(kBps)
	}
	inBytes, err1 := nvtopo.ParseBandwidth(text + "B/s")
	inBits, err2 := nvtopo.ParseBandwidth(text + "b/s")
	if err1 == nil && err2 == nil && strings.Trim(text, "0123456789.") != "" {
		return fmt.Sprintf("want a number of GB/s without a unit: write %s for %sB/s, or %s for %sb/s", inGBps(inBytes), text, inGBps(inBits), text)
	}
	return fmt.Sprintf("want a number above 0 and at most %d, in GB/s", maxGBps)
}

// inGBps returns a bandwidth in the form of the field: a whole number, or else a string.
func inGBps(kBps int64) string {
	text := nvtopo.FormatGBps(kBps)
	if strings.Contains(text, ".") {
		return strconv.Quote(text)
	}
	return text
}

// Bounds on a link, equal to the schema's.
const (
	maxGBps   = 1_000_000
	maxMicros = 1_000_000
)

// link reads a link. Values that are absent or cannot be read are taken from the sample cluster, and the
// link is marked as assumed.
func (r *reader) link(field string, l *v1alpha1.FabricLink, innermost bool) fabric.Link {
	inside, out := fabric.SampleLinks()
	if innermost {
		out = inside
	}
	given := 0
	if l.BandwidthGBps != nil {
		if v, ok := r.bandwidth(field, l.BandwidthGBps); ok {
			out.Bandwidth = v
			given++
		}
	}
	if l.LatencyMicros != nil {
		const digits = 3 // ns
		if v, ok := decimal(l.LatencyMicros.String(), digits); ok && v <= maxMicros*1e3 {
			out.Latency = v
			given++
		} else {
			r.invalid(field+".latencyMicros", "%q: want a number of at most %d, in microseconds", l.LatencyMicros.String(), maxMicros)
		}
	}
	if l.Hops > 0 {
		out.Hops = int(l.Hops)
	}
	out.Assumed = given < 2
	return out
}

// decimal reads a number such as 12.5 in units of 10^-digits. It takes no sign, no exponent
// and no more digits than that.
func decimal(text string, digits int) (value int64, ok bool) {
	const mostWhole = 7
	whole, fraction, point := strings.Cut(text, ".")
	if whole == "" || len(whole) > mostWhole || point && fraction == "" || len(fraction) > digits {
		return 0, false
	}
	for _, c := range []byte(whole + fraction + strings.Repeat("0", digits-len(fraction))) {
		if c < '0' || c > '9' {
			return 0, false
		}
		value = 10*value + int64(c-'0')
	}
	return value, true
}
