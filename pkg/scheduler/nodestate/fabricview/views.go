// SPDX-License-Identifier: Apache-2.0

package fabricview

import (
	"slices"
	"sync"
	"sync/atomic"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

// Views keeps the current View. Make one with New.
type Views struct {
	clock    clock.Clock
	current  atomic.Pointer[View]
	nodes    corelisters.NodeLister
	topology atomic.Pointer[v1alpha1.ClusterTopology] // nil: there is none
	keys     atomic.Pointer[[]string]                 // node labels that define the fabric
	changed  chan struct{}

	mu       sync.Mutex
	onChange []func() // guarded by mu
}

// New returns Views of a cluster without nodes. Its Revision is 0 until Watch has read them.
func New(clk clock.Clock) *Views {
	f := &Views{clock: clk, changed: make(chan struct{}, 1)}
	keys := clustertopology.LabelKeys(nil)
	f.keys.Store(&keys)
	f.current.Store(&View{Tree: empty()})
	return f
}

func empty() *fabric.Tree {
	t, _, err := fabric.NewTree(&fabric.Spec{})
	if err != nil {
		return &fabric.Tree{}
	}
	return t
}

// Current returns the current fabric. It takes no lock.
func (f *Views) Current() *View { return f.current.Load() }

// Topology returns the ClusterTopology in use; nil if there is none. It must not be changed.
func (f *Views) Topology() *v1alpha1.ClusterTopology { return f.topology.Load() }

// OnChange registers fn to be called after each new View. fn must not block.
func (f *Views) OnChange(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onChange = append(f.onChange, fn)
}

// Set makes a tree the current one. depths has the depth of each level by its node label. Only one
// goroutine may call it.
func (f *Views) Set(tree *fabric.Tree, depths map[string]int) {
	f.current.Store(&View{Tree: tree, Revision: f.Current().Revision + 1, depths: depths})
	f.mu.Lock()
	told := slices.Clone(f.onChange)
	f.mu.Unlock()
	for _, fn := range told {
		fn()
	}
}
