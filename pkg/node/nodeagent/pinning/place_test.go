// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestRequestFromShares: the CPU request is read from the shares.
func TestRequestFromShares(t *testing.T) {
	for shares, want := range map[uint64]int{0: 0, 2: 1, 102: 1, 1024: 1, 1025: 2, 1536: 2, 8192: 8, 1 << 18: 256, 1 << 63: 256} {
		if got := requestedCPUs(shares); got != want {
			t.Errorf("%d shares: %d CPUs, want %d", shares, got, want)
		}
	}
}

// TestContainerPlace: a container's place follows from its GPUs and its request.
func TestContainerPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		held       []kubelet.Record
		allocation *allocation.Allocation
		reserved   string
		online     string // all by default
		memory     string // 0-1 by default
		wantedCPUs int
		limit      int64
		wantCPUs   string
		wantMems   string
		wantErr    string
	}{
		"without a choice, all CPUs of the GPUs' NUMA node": {
			held: []kubelet.Record{record("train", "GPU-5")}, wantCPUs: "8-15", wantMems: "1",
		},
		"GPUs on both nodes have both": {
			held: []kubelet.Record{record("train", "GPU-0", "GPU-7")}, wantCPUs: "0-15", wantMems: "0-1",
		},
		"less the reserved CPUs": {
			held: []kubelet.Record{record("train", "GPU-5")}, reserved: "0,8-9", wantCPUs: "10-15", wantMems: "1",
		},
		"the chosen CPUs, when kubelet gave the chosen GPUs": {
			held: []kubelet.Record{record("train", "GPU-4", "GPU-5")}, allocation: choice("8-11", "train", "GPU-5", "GPU-4"), wantCPUs: "8-11", wantMems: "1",
		},
		"the chosen CPUs as far as they are on the GPUs' nodes": {
			held: []kubelet.Record{record("train", "GPU-4")}, allocation: choice("4-9", "train", "GPU-4"), wantCPUs: "8-9", wantMems: "1",
		},
		"not the chosen CPUs when kubelet gave other GPUs": {
			held: []kubelet.Record{record("train", "GPU-4")}, allocation: choice("8-9", "train", "GPU-5"), wantCPUs: "8-15", wantMems: "1",
		},
		"not the chosen CPUs of another container": {
			held: []kubelet.Record{record("train", "GPU-4")}, allocation: choice("8-9", "serve", "GPU-4"), wantCPUs: "8-15", wantMems: "1",
		},
		"not the chosen CPUs when they are elsewhere": {
			held: []kubelet.Record{record("train", "GPU-4")}, allocation: choice("0-3", "train", "GPU-4"), reserved: "8", wantCPUs: "9-15", wantMems: "1",
		},
		"the chosen CPUs without those taken offline": {
			held: []kubelet.Record{record("train", "GPU-4")}, allocation: choice("8-11", "train", "GPU-4"), online: "0-8,10-15", wantCPUs: "8,10-11", wantMems: "1",
		},
		"all CPUs of the node when the chosen ones there are fewer than it requests": {
			held: []kubelet.Record{record("train", "GPU-4")}, allocation: choice("4-9", "train", "GPU-4"), wantedCPUs: 6, wantCPUs: "8-15", wantMems: "1",
		},
		"left alone when its node has fewer CPUs than it requests": {
			held: []kubelet.Record{record("train", "GPU-4")}, reserved: "15", wantedCPUs: 8, wantErr: "requests 8 CPUs",
		},
		"no mems when its limit is more than the node has": {
			held: []kubelet.Record{record("train", "GPU-4")}, limit: 65 << 30, wantCPUs: "8-15",
		},
		"mems when its limit is what the nodes have": {
			held: []kubelet.Record{record("train", "GPU-0", "GPU-4")}, limit: 128 << 30, wantCPUs: "0-15", wantMems: "0-1",
		},
		"a share of a GPU belongs where the GPU is": {
			held: []kubelet.Record{record("train", "GPU-4::3")}, wantCPUs: "8-15", wantMems: "1",
		},
		"devices of other resources do not matter": {
			held:     []kubelet.Record{record("train", "GPU-0"), {PodUID: testPod, Container: "train", Resource: "rdma/hca", IDs: []string{"mlx5_1"}}},
			wantCPUs: "0-7", wantMems: "0",
		},
		"no mems when the node has no memory here": {
			held: []kubelet.Record{record("train", "GPU-5")}, memory: "0", wantCPUs: "8-15",
		},
		"only mems that have memory": {
			held: []kubelet.Record{record("train", "GPU-0", "GPU-5")}, memory: "0", wantCPUs: "0-15", wantMems: "0",
		},
		"left alone when a GPU's NUMA node is unknown": {
			held: []kubelet.Record{record("train", "GPU-0", "GPU-x")}, wantErr: "NUMA node of GPU-x is not known",
		},
		"left alone when a GPU is not in the graph": {
			held: []kubelet.Record{record("train", "GPU-0", "GPU-9")}, wantErr: "GPU-9 is not in the node's graph",
		},
		"left alone when it has no GPU": {
			held: []kubelet.Record{{PodUID: testPod, Container: "train", Resource: "rdma/hca", IDs: []string{"mlx5_1"}}}, wantErr: errNoGPUs.Error(),
		},
		"left alone when every CPU of its node is reserved": {
			held: []kubelet.Record{record("train", "GPU-0")}, reserved: "0-7", wantErr: `NUMA nodes 0 have "" for pods`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			online, memory := tc.online, tc.memory
			if online == "" {
				online = "0-15"
			}
			if memory == "" {
				memory = "0-1"
			}
			q := question{
				spec: &machine().Spec, held: tc.held, container: "train", allocation: tc.allocation,
				reserved: cpus(t, tc.reserved), online: cpus(t, online), memory: cpus(t, memory),
				wantCPUs: tc.wantedCPUs, limit: tc.limit,
			}
			got, err := q.where()
			if (tc.wantErr == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("error %v, want one with %q", err, tc.wantErr)
			}
			if diff := cmp.Diff([]string{tc.wantCPUs, tc.wantMems}, []string{got.cpus.String(), got.mems.String()}); diff != "" {
				t.Errorf("CPUs and mems (-want +got):\n%s", diff)
			}
			if err == nil && (len(got.mems) == 0) != (got.noMems != "") {
				t.Errorf("mems %v with the reason %q for having none", got.mems, got.noMems)
			}
		})
	}
}

// TestRandomPlaces: places are sound. Whatever is asked, the kernel can take the answer and it is
// near the GPUs.
func TestRandomPlaces(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	some := func(n int) nvtopo.CPUSet {
		var set []int
		for i := range n {
			if rng.IntN(2) == 0 {
				set = append(set, i)
			}
		}
		return nvtopo.NewCPUSet(set...)
	}
	answered := 0
	for range 5000 {
		var ids []string
		var near nvtopo.CPUSet
		for _, g := range some(8) {
			ids = append(ids, "GPU-"+strconv.Itoa(g))
			near = near.Union(cpus(t, []string{"0-7", "8-15"}[g/4]))
		}
		q := question{
			spec: &machine().Spec, held: []kubelet.Record{record("train", ids...)}, container: "train",
			allocation: choice(some(16).String(), "train", ids...), reserved: some(16), online: some(16), memory: some(3), wantCPUs: rng.IntN(5),
		}
		got, err := q.where()
		if err != nil {
			continue
		}
		answered++
		outside := got.cpus.Minus(intersect(near, q.online))
		if len(got.cpus) == 0 || len(got.cpus) < q.wantCPUs || len(outside) > 0 || len(got.mems.Minus(q.memory)) > 0 {
			t.Fatalf("%v with online %s, memory %s gives CPUs %s, mems %s", ids, q.online, q.memory, got.cpus, got.mems)
		}
		if wanted := intersect(intersect(near, q.online), cpus(t, q.allocation.CPUSet)); len(wanted) >= max(1, q.wantCPUs) && !slices.Equal(wanted, got.cpus) {
			t.Fatalf("%v gives CPUs %s, want the chosen %s", ids, got.cpus, wanted)
		}
	}
	if answered < 1000 {
		t.Fatalf("only %d of 5000 questions were answered: nothing is tested", answered)
	}
}
