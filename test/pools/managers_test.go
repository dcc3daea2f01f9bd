// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/pools/virtualization"
)

// gpusOfNode is the number of GPUs of each node of these tests.
const gpusOfNode = 8

// profiles are the slices that NVIDIA's MIG manager makes of a GPU of 80 GB, by the names of its
// configuration.
var profiles = map[string]map[string]int64{
	"all-disabled": {"gpu": 1},
	"all-1g.10gb":  {"mig-1g.10gb": 7},
	"all-3g.40gb":  {"mig-3g.40gb": 2},
	"all-balanced": {"mig-1g.10gb": 2, "mig-2g.20gb": 1, "mig-3g.40gb": 1},
}

// managers stand for NVIDIA's programs on a scenario's nodes: the MIG manager, which reports its progress
// by a label, and the device plugin, whose devices kubelet counts. Only they simulate hardware; all
// programs that use them here are real.
type managers struct {
	s *scenario

	mu   sync.Mutex
	seen map[string]string // by node: the last value it was told
	most int               // largest number of nodes cordoned at the same time; guarded by mu
	told []string          // node=value, in their order; guarded by mu
	// early are the nodes that served pods before the device plugin had restarted; guarded by mu
	early []string
	held  []string          // pods that held devices when a node was told to divide them; guarded by mu
	heard map[string]string // by node: the value that the plugin was told, and whether it has begun with it
}

// newManagers runs them on the nodes until the test ends.
func newManagers(t *testing.T, s *scenario) *managers {
	t.Helper()
	m := &managers{s: s, seen: map[string]string{}, heard: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := m.look(ctx); err != nil && ctx.Err() == nil {
				t.Logf("the managers: %v", err) // a conflict, or a busy API server
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if len(m.held) > 0 {
			t.Errorf("pods held devices when these were divided: %v", m.held)
		}
	})
	return m
}

// look reads the nodes once and performs their changes.
func (m *managers) look(ctx context.Context) error {
	cordoned := 0
	for _, name := range m.s.nodes {
		var n v1.Node
		if err := m.s.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return err
		}
		if n.Annotations[virtualization.AnnotationCordon] != "" {
			cordoned++
		}
		if err := m.manage(ctx, &n); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = max(m.most, cordoned)
	return nil
}

// manage is both programs' reaction to one node.
func (m *managers) manage(ctx context.Context, n *v1.Node) error {
	mig, turns := n.Labels[virtualization.LabelMIG], n.Labels[virtualization.LabelPlugin]
	if told := mig + " " + turns; told == m.seen[n.Name] {
		return nil
	}
	before, turnsBefore, _ := strings.Cut(m.seen[n.Name], " ")
	if mig == "" && before != "" { // the MIG manager does nothing without a label
		m.seen[n.Name] = mig + " " + turns
		return nil
	}
	if turns != turnsBefore && !m.startsAnew(n, turns) {
		return nil
	}
	if mig != before {
		held, err := m.holders(ctx, n.Name)
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.told = append(m.told, n.Name+"="+mig)
		m.held = append(m.held, held...)
		m.mu.Unlock()
		if err := m.state(ctx, n, "pending"); err != nil {
			return err
		}
		if _, known := profiles[mig]; !known {
			m.seen[n.Name] = mig + " " + turns
			return m.state(ctx, n, "failed")
		}
	}
	if err := m.devices(ctx, n, mig, turns); err != nil {
		return err
	}
	if mig != before {
		if err := m.state(ctx, n, "success"); err != nil {
			return err
		}
	}
	m.seen[n.Name] = mig + " " + turns
	return nil
}

// holders returns the pods on a node that have devices.
func (m *managers) holders(ctx context.Context, node string) (held []string, err error) {
	var pods v1.PodList
	if err := m.s.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed && devicesOf(&p.Spec) > 0 {
			held = append(held, fmt.Sprintf("%s/%s on %s", p.Namespace, p.Name, node))
		}
	}
	return held, nil
}

// startsAnew is the device plugin's reaction to a changed label: it begins at its next look, and the node
// must not serve pods until then.
func (m *managers) startsAnew(n *v1.Node, turns string) bool {
	told, begun := "told "+turns, "begun "+turns
	switch m.heard[n.Name] {
	case begun: // its write was refused
		return true
	case told:
		m.heard[n.Name] = begun
	default:
		m.heard[n.Name] = told
		return false
	}
	if !n.Spec.Unschedulable {
		m.mu.Lock()
		m.early = append(m.early, n.Name+" with "+turns)
		m.mu.Unlock()
	}
	return true
}

func (m *managers) state(ctx context.Context, n *v1.Node, state string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, virtualization.LabelMIGState, state)
	return m.s.Patch(ctx, n, client.RawPatch(types.MergePatchType, patch))
}

// devices sets the plugin's new devices in kubelet's count. Previous resources stay, with a count of
// zero.
func (m *managers) devices(ctx context.Context, n *v1.Node, mig, turns string) error {
	count := map[string]int64{"gpu": gpusOfNode}
	if of, known := profiles[mig]; known {
		count = map[string]int64{"gpu": 0}
		for name, each := range of {
			count[name] = each * gpusOfNode
		}
	}
	count["gpu.shared"] = 0
	if replicas, err := strconv.ParseInt(strings.TrimPrefix(turns, "time-slicing-"), 10, 64); err == nil {
		count["gpu"], count["gpu.shared"] = 0, gpusOfNode*replicas
	}
	list := map[string]string{}
	for name := range n.Status.Capacity {
		if short, ok := strings.CutPrefix(string(name), "nvidia.com/"); ok {
			list["nvidia.com/"+short] = "0"
		}
	}
	for name, each := range count {
		list["nvidia.com/"+name] = strconv.FormatInt(each, 10)
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": list, "allocatable": list}})
	if err != nil {
		return err
	}
	return m.s.Status().Patch(ctx, n, client.RawPatch(types.MergePatchType, data))
}

// atOnce returns the largest number of nodes that were out of service at the same time.
func (m *managers) atOnce() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}

// servedEarly returns the nodes that took pods before the device plugin had restarted.
func (m *managers) servedEarly() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.early)
}

// toldOf returns the nodes that were told a value, sorted.
func (m *managers) toldOf(value string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes := map[string]bool{}
	for _, entry := range m.told {
		if name, got, _ := strings.Cut(entry, "="); got == value {
			nodes[name] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}
