// SPDX-License-Identifier: Apache-2.0

package clusterview_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// changing is a cluster whose objects change at random, each with a new version.
type changing struct {
	*viewtest.Cluster

	r       *rand.Rand
	version int
}

func (c *changing) touch(o metav1.Object) {
	c.version++
	o.SetResourceVersion(strconv.Itoa(c.version))
}

// step makes one change.
func (c *changing) step() {
	node, pod := &c.Nodes[c.r.IntN(len(c.Nodes))], c.r.IntN(max(len(c.Pods), 1))
	switch c.r.IntN(9) {
	case 0:
		c.Pods = slices.Clone(c.Pods)
		c.touch(c.AddPod("p"+strconv.Itoa(c.version), node.Name, 1, c.r.IntN(2)))
	case 1:
		c.Pods = slices.Clone(c.Pods)
		c.touch(c.AddPod("n"+strconv.Itoa(c.version), node.Name, 1)) // by number
	case 2:
		c.Pods = slices.Delete(slices.Clone(c.Pods), min(pod, len(c.Pods)), min(pod+1, len(c.Pods)))
	case 3:
		if len(c.Pods) > 0 {
			c.Pods = slices.Clone(c.Pods)
			c.Pods[pod].Status.Phase = v1.PodSucceeded
			c.touch(&c.Pods[pod])
		}
	case 4:
		node.Spec.Unschedulable = !node.Spec.Unschedulable
		c.touch(node)
	case 5:
		node.Labels = map[string]string{"topology.kubernetes.io/rack": "r" + strconv.Itoa(c.r.IntN(3))}
		c.touch(node)
	case 6:
		t := c.Topology(node.Name)
		t.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: t.Spec.GPUs[c.r.IntN(4)].ID, Reason: "Xid79"}}
		c.touch(t)
	case 7:
		c.Now = c.Now.Add(time.Duration(c.r.IntN(60)) * time.Second)
	case 8:
		c.renew(node.UID)
	}
	if c.r.IntN(20) == 0 {
		c.Budgets = nil
		c.AddBudget("p"+strconv.Itoa(c.version), int32(c.r.IntN(2)))
		c.touch(&c.Budgets[0])
	}
}

// renew renews a node's Lease, or all but its own.
func (c *changing) renew(node types.UID) {
	c.Leases = slices.Clone(c.Leases)
	for i := range c.Leases {
		if (c.Leases[i].OwnerReferences[0].UID == node) == (c.r.IntN(4) > 0) {
			c.Leases[i].Spec.RenewTime = new(metav1.NewMicroTime(c.Now))
		}
	}
}

// TestMemoView: a memo views the same. It has a cluster change, and compares the view of who
// remembers with that of who does not.
func TestMemoView(t *testing.T) {
	for seed := range uint64(12) {
		c := &changing{Cluster: viewtest.New(), r: rand.New(rand.NewPCG(seed, 7))}
		for i := range 5 {
			if err := c.AddNode("n"+strconv.Itoa(i), smallMachines[i%len(smallMachines)]); err != nil {
				t.Fatal(err)
			}
			c.touch(&c.Nodes[i])
			c.touch(&c.Topologies[i])
		}
		m := clusterview.NewMemo()
		for step := range 120 {
			for range 1 + c.r.IntN(3) {
				c.step()
			}
			objects := c.Objects
			got, want := m.Of(&objects, clusterview.Options{}), clusterview.Of(&objects, clusterview.Options{})
			if diff := cmp.Diff(asJSON(t, want), asJSON(t, got)); diff != "" {
				t.Fatalf("seed %d, step %d (-without memory,+with it):\n%s", seed, step, diff)
			}
			if a, b := want.Advise(clusterview.AdviceOptions{GPUs: 4, MaxMoves: 1, Steps: 200}), got.Advise(clusterview.AdviceOptions{GPUs: 4, MaxMoves: 1, Steps: 200}); cmp.Diff(a, b) != "" {
				t.Fatalf("seed %d, step %d, advice (-without memory,+with it):\n%s", seed, step, cmp.Diff(a, b))
			}
		}
	}
}

// TestMemoChanges: a memo sees each change. It has one change made, and compares the view of who
// remembers with that of who does not.
func TestMemoChanges(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *changing){
		"a node is made anew, and its graph is still the old one's": func(_ *testing.T, c *changing) {
			c.Nodes[0].UID = "another"
		},
		"a node is made anew, in the same version, of another machine": func(t *testing.T, c *changing) {
			t.Helper()
			fresh := viewtest.New()
			if err := fresh.AddNode("n0", "dgx1-v100"); err != nil {
				t.Fatal(err)
			}
			fresh.Nodes[0].UID, fresh.Topologies[0].Spec.NodeUID, fresh.Leases[0].OwnerReferences[0].UID = "another", "another", "another"
			fresh.Nodes[0].ResourceVersion, fresh.Topologies[0].ResourceVersion = c.Nodes[0].ResourceVersion, c.Topologies[0].ResourceVersion
			fresh.Topologies[0].UID = "another-graph"
			c.Nodes[0], c.Topologies[0], c.Leases[0] = fresh.Nodes[0], fresh.Topologies[0], fresh.Leases[0]
		},
		"a pod is made anew, in the same version, without a gang": func(_ *testing.T, c *changing) {
			c.Pods[0].UID, c.Pods[0].Annotations = "another", map[string]string{}
		},
		"the ClusterTopology comes": func(_ *testing.T, c *changing) {
			c.ClusterTopology = topologyOf("block", "example.com/block")
		},
		"the ClusterTopology has another level": func(_ *testing.T, c *changing) {
			c.ClusterTopology = topologyOf("row", "example.com/row")
		},
		"the ClusterTopology goes": func(_ *testing.T, c *changing) { c.ClusterTopology = nil },
		"a pod is of another gang": func(_ *testing.T, c *changing) {
			c.Pods[0].Annotations = maps.Clone(c.Pods[0].Annotations)
			c.Pods[0].Annotations[gangrequest.GangKey] = "other"
			c.touch(&c.Pods[0])
		},
		"a pod is of no gang": func(_ *testing.T, c *changing) {
			c.Pods[0].Annotations = maps.Clone(c.Pods[0].Annotations)
			delete(c.Pods[0].Annotations, gangrequest.GangKey)
			c.touch(&c.Pods[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &changing{Cluster: viewtest.New()}
			for i := range 3 {
				at := strconv.Itoa(i)
				if err := c.AddNode("n"+at, "hgx-a100-4", "example.com/block", "b"+at, "example.com/row", "r0"); err != nil {
					t.Fatal(err)
				}
				c.touch(&c.Nodes[i])
				c.touch(&c.Topologies[i])
				p := c.AddPod("p"+at, "n"+at, 1, 0)
				p.Annotations[gangrequest.GangKey] = "g"
				c.touch(p)
			}
			if name != "the ClusterTopology comes" {
				c.ClusterTopology = topologyOf("block", "example.com/block")
			}
			m := clusterview.NewMemo()
			before := c.Objects
			before.Nodes, before.Topologies, before.Pods, before.Leases = slices.Clone(c.Nodes), slices.Clone(c.Topologies), slices.Clone(c.Pods), slices.Clone(c.Leases)
			was := asJSON(t, m.Of(&before, clusterview.Options{}))
			change(t, c)
			objects := c.Objects
			got, want := asJSON(t, m.Of(&objects, clusterview.Options{})), asJSON(t, clusterview.Of(&objects, clusterview.Options{}))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("view (-without memory,+with it):\n%s", diff)
			}
			if got == was {
				t.Error("the view is the same as before the change, which proves nothing")
			}
		})
	}
}

// topologyOf is a fabric of one level.
func topologyOf(level, label string) *v1alpha1.ClusterTopology {
	return &v1alpha1.ClusterTopology{
		ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.ClusterTopologySpec{Levels: []v1alpha1.FabricLevel{{Name: level, NodeLabel: label}}},
	}
}

// TestMemoRetention: a memo keeps no moment: of the objects of earlier moments nothing stays but
// those that nodes are made of.
func TestMemoRetention(t *testing.T) {
	c := &changing{Cluster: viewtest.New(), r: rand.New(rand.NewPCG(1, 7))}
	for i := range 20 {
		name := "n" + strconv.Itoa(i)
		if err := c.AddNode(name, "hgx-a100-4"); err != nil {
			t.Fatal(err)
		}
		c.touch(&c.Nodes[i])
		c.touch(&c.Topologies[i])
		c.touch(c.AddPod("p"+strconv.Itoa(i), name, 1, 0))
	}
	m := clusterview.NewMemo()
	var pods []weak.Pointer[v1.Pod]
	var nodes []weak.Pointer[v1.Node]
	var topologies []weak.Pointer[v1alpha1.NodeGPUTopology]
	for i := range 20 {
		o := c.Objects
		o.Pods, o.Nodes, o.Topologies = slices.Clone(o.Pods), slices.Clone(o.Nodes), slices.Clone(o.Topologies)
		c.touch(&c.Pods[i]) // so that each node would keep another moment
		pods, nodes, topologies = append(pods, weak.Make(&o.Pods[0])), append(nodes, weak.Make(&o.Nodes[0])), append(topologies, weak.Make(&o.Topologies[0]))
		m.Of(&o, clusterview.Options{})
	}
	runtime.GC()
	kept := 0
	for i := range pods {
		for _, there := range []bool{pods[i].Value() != nil, nodes[i].Value() != nil, topologies[i].Value() != nil} {
			if there {
				kept++
			}
		}
	}
	if kept > 3 {
		t.Errorf("%d lists of objects of 20 moments are kept, want those of the last one at most", kept)
	}
	runtime.KeepAlive(m)
}

// TestLeaseAfterPause: a Lease is as old as it says after a pause. One that was renewed in the
// middle of it has run out.
func TestLeaseAfterPause(t *testing.T) {
	c := viewtest.New()
	if err := c.AddNode("n", "hgx-a100-4"); err != nil {
		t.Fatal(err)
	}
	m := clusterview.NewMemo()
	first := c.Objects
	if n := m.Of(&first, clusterview.Options{}).Node("n"); n.NoGraph != "" {
		t.Fatalf("at first %s", n.NoGraph)
	}
	c.Leases = slices.Clone(c.Leases)
	c.Leases[0].Spec.RenewTime = new(metav1.NewMicroTime(c.Now.Add(10 * time.Minute)))
	later := c.Objects
	later.Now = c.Now.Add(time.Hour)
	if n := m.Of(&later, clusterview.Options{}).Node("n"); n.NoGraph == "" {
		t.Error("its Lease was renewed 50 minutes ago, and its graph counts")
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
