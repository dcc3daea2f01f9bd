// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// readPrevious reads a list that programs of the previous release wrote.
func readPrevious(t *testing.T, file string, list any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "skew", "level-1", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, list); err != nil {
		t.Fatal(err)
	}
}

// TestPreviousReleaseObjects: objects of the previous release are read: with its graphs and its
// pods every GPU is known, none is only counted.
func TestPreviousReleaseObjects(t *testing.T) {
	var graphs v1alpha1.NodeGPUTopologyList
	readPrevious(t, "topologies.yaml", &graphs)
	var pods v1.PodList
	readPrevious(t, "pods.yaml", &pods)
	s := New(testConfig(), &tickClock{now: time.Unix(1_700_000_000, 0)})
	s.onMalformed = func(pod *v1.Pod, err error) { t.Errorf("pod %s: %v", pod.Name, err) }
	store := fixedStore{}
	byNode := map[string][]*v1.Pod{}
	for i := range pods.Items {
		p := &pods.Items[i]
		store[p.UID], byNode[p.Spec.NodeName] = p, append(byNode[p.Spec.NodeName], p)
	}
	s.pods = store
	var looked int
	for i := range graphs.Items {
		g := &graphs.Items[i]
		if _, err := s.Apply(g); err != nil {
			t.Fatal(err)
		}
		node := schedtest.Node(g.Name).UID(string(g.Spec.NodeUID)).Obj()
		lister := schedcache.NewSnapshot(byNode[g.Name], []*v1.Node{node}).NodeInfos()
		info, err := lister.Get(g.Name)
		if err != nil {
			t.Fatal(err)
		}
		u := s.usage(s.cells.get(g.Name), s.Node(g.Name), info, lister)
		var want nvtopo.Mask
		for _, p := range byNode[g.Name] {
			a, err := allocation.Parse(p.Annotations[allocation.Key])
			if err != nil {
				t.Fatal(err)
			}
			set, missing := s.Node(g.Name).Accels[0].Graph.Positions(a.GPUs(testResource))
			if len(missing) > 0 {
				t.Errorf("pod %s has %v, which its node has not", p.Name, missing)
			}
			want |= set
			looked++
		}
		if u.Used[0] != want || u.Counted[0] != 0 || u.Foreign[0] {
			t.Errorf("node %s: used %v, %d counted, foreign: %v; want used %v", g.Name, u.Used[0], u.Counted[0], u.Foreign[0], want)
		}
	}
	if looked < 5 {
		t.Errorf("only %d pods were looked at", looked)
	}
}

// TestPreviousReleaseRecords: records of the previous release are read: what its agent published is
// known too.
func TestPreviousReleaseRecords(t *testing.T) {
	var graphs v1alpha1.NodeGPUTopologyList
	readPrevious(t, "topologies-realnode.yaml", &graphs)
	s := New(testConfig(), &tickClock{now: time.Unix(1_700_000_000, 0)})
	g := &graphs.Items[0]
	if _, err := s.Apply(g); err != nil {
		t.Fatal(err)
	}
	n := s.Node(g.Name)
	recorded := 0
	for _, recs := range n.Records {
		for _, r := range recs {
			recorded += len(r.GPUs)
			if r.Foreign || r.Resource != testResource {
				t.Errorf("record %+v, want one of ours", r)
			}
		}
	}
	if recorded != 5 || n.KubeletPolicy != nvtopo.PolicyNone || n.Settings == "" {
		t.Errorf("%d GPUs recorded, policy %v, settings %q; want 5, none and some", recorded, n.KubeletPolicy, n.Settings)
	}
}
