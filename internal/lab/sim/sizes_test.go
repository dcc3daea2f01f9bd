// SPDX-License-Identifier: Apache-2.0

package sim

import "testing"

// sizedPairs are a smaller machine and a larger one: with links of the same kind, with
// slower links on the smaller and with faster ones.
var sizedPairs = [][2]string{
	{"gb200-tray", "hgx-b200"},
	{"hgx-a100-4", "hgx-a100-8"},
	{bridged, "l40s-8"},
	{bridged, "a6000-8-bridged"},
	{"power9-v100-4", "dgx1-v100"},
}

// TestSingleGPUPacking: single GPUs leave the larger machine whole. It has as many pods of one GPU
// as the smaller machine has GPUs, and then one that only the larger can serve.
func TestSingleGPUPacking(t *testing.T) {
	for _, pair := range sizedPairs {
		for _, order := range [][2]string{pair, {pair[1], pair[0]}} {
			t.Run(order[0]+" and "+order[1], func(t *testing.T) {
				nodes := clusterOf(t, order[0], order[1])
				small, large := nodes[0].Graph.Len(), nodes[1].Graph.Len()
				if small > large {
					small, large = large, small
				}
				var trace []Job
				for i := range small {
					trace = append(trace, Job{ArrivalS: float64(i), DurationS: 1000, GPUs: 1, Pods: 1})
				}
				trace = append(trace, Job{ArrivalS: 100, DurationS: 10, GPUs: large, Pods: 1})
				_, seen := watched(t, Config{Nodes: nodes, Jobs: trace, Policy: Ours})
				last := seen[len(seen)-1]
				if last.Job != small || last.StartS != 100 {
					t.Errorf("the pod of %d GPUs starts at %v s, want 100 s, when it comes; placements: %v", large, last.StartS, seen)
				}
			})
		}
	}
}

// TestEightGPUPodWaits: pods of eight GPUs wait no longer than with other policies. It compares
// mean waits on machines of different size with those of policies that choose the node by its free
// GPUs; which picker they have makes no difference to when a pod starts. Waits have a heavy tail,
// hence the number of seeds.
func TestEightGPUPodWaits(t *testing.T) {
	const pods, seeds = 4000, 30
	for _, pair := range sizedPairs[:4] {
		t.Run(pair[0]+" and "+pair[1], func(t *testing.T) {
			var machines []string
			for range 16 {
				machines = append(machines, pair[0], pair[1])
			}
			nodes := clusterOf(t, machines...)
			waits := map[string]float64{}
			for seed := range uint64(seeds) {
				trace, err := Synthetic("multigpu50", pods, seed)
				if err != nil {
					t.Fatal(err)
				}
				for _, policy := range []string{Ours, "binpack+exact", "fgd+exact", "spread+exact"} {
					r := mustRun(t, Config{Nodes: nodes, Jobs: trace, Policy: policy, Load: 0.85, WarmUp: DefaultWarmUp})
					waits[policy] += r.MeanWait8S / seeds
				}
			}
			for policy, wait := range waits {
				if waits[Ours] > wait {
					t.Errorf("pods of eight wait %.0f s, with %s %.0f s", waits[Ours], policy, wait)
				}
			}
		})
	}
}
