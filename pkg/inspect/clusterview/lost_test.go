// SPDX-License-Identifier: Apache-2.0

package clusterview_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

// replaced gives GPUs of a node other UUIDs than its pods were given.
func replaced(c *viewtest.Cluster, node string, gpus ...int) {
	t := c.Topology(node)
	for _, i := range gpus {
		t.Spec.GPUs[i].ID = "GPU-new-" + strconv.Itoa(i)
	}
}

// offered sets how many devices the kubelet of the only node offers.
func offered(c *viewtest.Cluster, n int64) {
	c.Nodes[0].Status.Allocatable[v1alpha1.DefaultResource] = *resource.NewQuantity(n, resource.DecimalSI)
}

// TestNumberBesideGraph: a view has no more free than the scheduler has by number, and says which pods
// hold what the graph no longer has.
func TestNumberBesideGraph(t *testing.T) {
	type figures struct {
		Used, Free, Counted, Pairs, Singles int
		Largest                             int
		Note                                string
		Pods                                map[string]string // what they hold that is lost
	}
	tests := map[string]struct {
		machine string
		change  func(c *viewtest.Cluster)
		want    figures
	}{
		"a GPU is lost under a pod, and kubelet offers one less": {
			machine: "dgx-h100",
			change: func(c *viewtest.Cluster) {
				c.AddPod("h0", "n", 2, 0, 1)
				c.AddPod("d0", "n", 2, 2, 3)
				c.AddPod("d1", "n", 2, 4, 5)
				c.Topology("n").Status.GPUHealth = []v1alpha1.GPUHealth{{ID: c.Topology("n").Spec.GPUs[0].ID, Reason: "GPU is lost"}}
				offered(c, 7)
			},
			want: figures{Used: 6, Free: 1, Counted: 1, Singles: 1, Note: "default/h0 holds GPU 0, which is unhealthy", Pods: map[string]string{"h0": "holds GPU 0, which is unhealthy"}},
		},
		"the same, before kubelet has heard of it": {
			machine: "dgx-h100",
			change: func(c *viewtest.Cluster) {
				c.AddPod("h0", "n", 2, 0, 1)
				c.Topology("n").Status.GPUHealth = []v1alpha1.GPUHealth{{ID: c.Topology("n").Spec.GPUs[0].ID, Reason: "GPU is lost"}}
			},
			want: figures{Used: 2, Free: 6, Pairs: 3, Singles: 6, Largest: 6, Pods: map[string]string{"h0": "holds GPU 0, which is unhealthy"}},
		},
		"all UUIDs change under two pods": {
			machine: "hgx-a100-4",
			change: func(c *viewtest.Cluster) {
				c.AddPod("p1", "n", 2, 0, 1)
				c.AddPod("p2", "n", 1, 2)
				replaced(c, "n", 0, 1, 2, 3)
			},
			want: figures{
				Used: 3, Free: 1, Counted: 3, Singles: 1,
				Note: "default/p1 holds 2 GPUs that are no longer part of the node; default/p2 holds 1 GPU that is no longer part of the node",
				Pods: map[string]string{"p1": "holds 2 GPUs that are no longer part of the node", "p2": "holds 1 GPU that is no longer part of the node"},
			},
		},
		"one UUID changes under a pod that has all GPUs": {
			machine: "hgx-a100-4",
			change: func(c *viewtest.Cluster) {
				c.AddPod("q4", "n", 4, 0, 1, 2, 3)
				replaced(c, "n", 3)
			},
			want: figures{
				Used: 4, Counted: 1, Note: "default/q4 holds 1 GPU that is no longer part of the node",
				Pods: map[string]string{"q4": "holds 1 GPU that is no longer part of the node"},
			},
		},
		"kubelet offers fewer than the graph has, and no pod holds lost ones": {
			machine: "dgx-h100",
			change:  func(c *viewtest.Cluster) { offered(c, 6) },
			want:    figures{Free: 6, Counted: 2, Pairs: 3, Singles: 6, Largest: 6, Note: "kubelet offers 6 of 8 GPUs"},
		},
		"two GPUs are partitioned, and kubelet offers as many devices as before": {
			machine: "dgx-h100",
			change: func(c *viewtest.Cluster) {
				for _, i := range []int{0, 1} {
					c.Topology("n").Spec.GPUs[i].MIG = true
				}
			},
			want: figures{Free: 6, Pairs: 3, Singles: 6, Largest: 6, Note: "2 of 8 GPUs are partitioned (MIG): whole GPUs only"},
		},
		"four GPUs are shared as 16 devices": {
			machine: "hgx-a100-4",
			change: func(c *viewtest.Cluster) {
				for i := range 4 {
					c.AddPod("p"+strconv.Itoa(i), "n", 1, i)
				}
				offered(c, 16)
			},
			want: figures{Used: 4, Note: "kubelet offers 16 devices of 4 GPUs, which are shared: whole GPUs only"},
		},
		"kubelet records replicas of a shared GPU, which are no lost ones": {
			machine: "hgx-a100-4",
			change: func(c *viewtest.Cluster) {
				p := c.AddPod("p", "n", 1, 0)
				top := c.Topology("n")
				top.Status.Allocations = []v1alpha1.Allocation{{
					PodUID: p.UID, Namespace: "default", Pod: "p", Container: "main", Resource: v1alpha1.DefaultResource, GPUs: []string{top.Spec.GPUs[0].ID + "::3"},
				}}
			},
			want: figures{Used: 1, Free: 3, Pairs: 1, Singles: 3, Largest: 3},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := viewtest.New()
			if err := c.AddNode("n", tc.machine); err != nil {
				t.Fatal(err)
			}
			tc.change(c)
			v := clusterview.Of(&c.Objects, clusterview.Options{})
			n := v.Node("n")
			got := figures{Used: n.Supply.UsedGPUs, Free: n.Supply.FreeGPUs, Counted: n.CountedGPUs, Note: n.Note}
			for _, s := range n.Supply.Slots {
				switch s.GPUs {
				case 1:
					got.Singles = s.Free
				case 2:
					got.Pairs = s.Free
				}
			}
			if n.Largest != nil {
				got.Largest = len(n.Largest.GPUs)
			}
			for i := range n.Pods {
				if p := &n.Pods[i]; p.Lost != "" {
					if got.Pods == nil {
						got.Pods = map[string]string{}
					}
					got.Pods[p.Name] = p.Lost
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("figures (-want,+got):\n%s", diff)
			}
			if tc.want.Note != "" {
				if diff := cmp.Diff([]string{`node "n": ` + tc.want.Note}, v.Problems); diff != "" {
					t.Errorf("problems (-want,+got):\n%s", diff)
				}
			}
		})
	}
}

// TestRefusingKubelet: a view says of which node the kubelet refuses pods, and no longer once that is long
// ago.
func TestRefusingKubelet(t *testing.T) {
	c := viewtest.New()
	if err := c.AddNode("n", "dgx-h100"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		p := c.AddPod("p"+strconv.Itoa(i), "n", 2, 0, 1)
		p.Status.Phase, p.Status.Reason, p.CreationTimestamp = v1.PodFailed, "OutOfnvidia.com/gpu", metav1.NewTime(c.Now)
		p.ResourceVersion = "1"
	}
	c.Nodes[0].ResourceVersion, c.Topologies[0].ResourceVersion = "1", "1"
	memo := clusterview.NewMemo()
	for _, after := range []time.Duration{0, 5 * time.Minute} {
		c.Now = c.Now.Add(after)
		want := ""
		if after == 0 {
			want = "kubelet refused 3 pods with GPUs within 5 minutes, the last with OutOfnvidia.com/gpu: other nodes are preferred"
		}
		v := memo.Of(&c.Objects, clusterview.Options{})
		if n := v.Node("n"); n.Refuses != want || n.Supply.UsedGPUs != 0 {
			t.Errorf("after %v: %q, %d GPUs used, want %q and none", after, n.Refuses, n.Supply.UsedGPUs, want)
		}
	}
}

// TestUnknownCPUAccount: a view says why a kubelet's exclusive CPUs are not known.
func TestUnknownCPUAccount(t *testing.T) {
	c := viewtest.New()
	if err := c.AddNode("n", "dgx-h100"); err != nil {
		t.Fatal(err)
	}
	c.Topologies[0].Status.Kubelet = &v1alpha1.Kubelet{
		TopologyManagerPolicy: "restricted", CPUManagerPolicy: "static", ExclusiveCPUsProblem: "CPU manager state: unknown field podEntries",
	}
	n := clusterview.Of(&c.Objects, clusterview.Options{}).Node("n")
	if want := "kubelet's exclusive CPUs are not known: CPU manager state: unknown field podEntries"; n.Note != want {
		t.Errorf("note %q, want %q", n.Note, want)
	}
}
