// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// entriesOf makes n entries of pods in order, each with one list of devices and CPUs.
func entriesOf(n int, gpus func(i int) []string, cpus string) []entry {
	out := make([]entry, n)
	for i := range out {
		out[i].Allocation = v1alpha1.Allocation{PodUID: types.UID(fmt.Sprintf("%04d", i)), Container: "c", Resource: v1alpha1.DefaultResource, GPUs: gpus(i), CPUs: cpus}
	}
	return out
}

// TestLongRecord: a long record is published in part. No more than the schema takes, of each device
// that a container has at least one entry, and what is left out is counted.
func TestLongRecord(t *testing.T) {
	shared := func(i int) []string { return []string{fmt.Sprintf("GPU-%d", i/20)} }
	many := func(n int) func(int) []string {
		return func(int) []string {
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("GPU-%02d", i)
			}
			return ids
		}
	}
	const half = v1alpha1.MaxAllocatedCPUs / 2
	tests := map[string]struct {
		entries                   []entry
		want, wantGPUs, wantLists int
		wantOut                   leftOut
	}{
		"as many containers as there may be":  {entriesOf(v1alpha1.MaxAllocations, shared, ""), 512, 26, 0, leftOut{}},
		"more containers":                     {entriesOf(600, shared, ""), 512, 30, 0, leftOut{containers: 88}},
		"as many devices":                     {entriesOf(8, many(64), ""), 8, 64, 0, leftOut{}},
		"more devices of one container":       {entriesOf(1, many(65), ""), 1, 64, 0, leftOut{devices: 1, unseen: 1}},
		"more devices of all":                 {entriesOf(10, many(64), ""), 10, 64, 0, leftOut{devices: 128}},
		"CPUs as long as they may be":         {entriesOf(2, shared, strings.Repeat("1", half)), 2, 1, 2, leftOut{}},
		"longer ones":                         {entriesOf(3, shared, strings.Repeat("1", half)), 3, 1, 2, leftOut{cpuLists: 1}},
		"a device with too long a name":       {entriesOf(1, func(int) []string { return []string{strings.Repeat("x", 97)} }, ""), 1, 0, 0, leftOut{devices: 1, unseen: 1}},
		"a device that only the last one has": {entriesOf(600, func(i int) []string { return []string{fmt.Sprintf("GPU-%d", i/599)} }, ""), 512, 2, 0, leftOut{containers: 88}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			list, out := publishable(tc.entries)
			gpus, lists := map[string]bool{}, 0
			for i, a := range list {
				if i > 0 && list[i-1].PodUID >= a.PodUID {
					t.Errorf("entry %d is out of order", i)
				}
				for _, id := range a.GPUs {
					gpus[id] = true
				}
				if a.CPUs != "" {
					lists++
				}
			}
			if len(list) != tc.want || len(gpus) != tc.wantGPUs || lists != tc.wantLists || out != tc.wantOut {
				t.Errorf("%d entries of %d GPUs with %d lists of CPUs, left out %+v, want %d of %d with %d and %+v",
					len(list), len(gpus), lists, out, tc.want, tc.wantGPUs, tc.wantLists, tc.wantOut)
			}
		})
	}
}

// TestGPUInUse: each GPU in use is published. Whatever the order of the pods, and however many GPUs
// they share, each GPU in use is in an entry.
func TestGPUInUse(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func(int) []string {
		ids := map[string]bool{}
		for range 1 + random.IntN(40) {
			ids[fmt.Sprintf("GPU-%02d", random.IntN(nvtopo.MaxGPUs))] = true
		}
		return slices.Sorted(maps.Keys(ids))
	}
	tests := map[string]struct {
		entries int
		gpus    func(i int) []string
	}{
		"one GPU more in each": {64, func(i int) []string {
			ids := make([]string, i+1)
			for j := range ids {
				ids[j] = fmt.Sprintf("GPU-%02d", j)
			}
			return ids
		}},
		"the last one has the GPUs that no other has": {600, func(i int) []string {
			if i < 599 {
				return []string{"GPU-00"}
			}
			return []string{"GPU-00", "GPU-01", "GPU-02"}
		}},
		"many sets that overlap": {700, some},
		"eight of one set, then others": {9, func(i int) []string {
			ids := make([]string, 63)
			for j := range ids {
				ids[j] = fmt.Sprintf("GPU-%02d", j+i/8)
			}
			return ids
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			entries := entriesOf(tc.entries, tc.gpus, "")
			list, _ := publishable(entries)
			shown, total := map[string]bool{}, 0
			for i, a := range list {
				total += len(a.GPUs)
				for _, id := range a.GPUs {
					shown[id] = true
				}
				if i > 0 && list[i-1].PodUID >= a.PodUID || !slices.IsSorted(a.GPUs) {
					t.Errorf("entry %d is out of order", i)
				}
			}
			if len(list) > v1alpha1.MaxAllocations || total > v1alpha1.MaxAllocatedGPUs {
				t.Errorf("%d entries with %d GPUs are more than the schema takes", len(list), total)
			}
			for i := range entries {
				for _, id := range entries[i].GPUs {
					if !shown[id] {
						t.Fatalf("%s of entry %d is in no published entry", id, i)
					}
				}
			}
		})
	}
}

// cpusOf says that all containers are confined to one list of CPUs.
type cpusOf string

func (c cpusOf) CPUs(types.UID, string) string { return string(c) }

// TestManyContainers: an honest node of many containers stays enforced: what the schema does not
// take is said, and the Lease goes on, while each GPU in use is published.
func TestManyContainers(t *testing.T) {
	tests := map[string]struct {
		pods     int
		cpus     string
		wantSays string
	}{
		"as many containers as there may be": {pods: v1alpha1.MaxAllocations},
		"more containers":                    {pods: v1alpha1.MaxAllocations + 22, wantSays: "22 containers"},
		"longer lists of CPUs in all":        {pods: 100, cpus: everyOther(200), wantSays: "lists of CPUs"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestEnv(t, func(c *Config) { c.Extra = cpusOf(tc.cpus) })
				var records []kubelet.Record
				for i := range tc.pods {
					pod := types.UID(fmt.Sprintf("p%04d", i))
					s.pods = append(s.pods, running(pod).Obj())
					records = append(records, rec(pod, fmt.Sprintf("m=%d::%d", i%8, i)))
				}
				s.record(t, records...)
				s.run(t)
				time.Sleep(5 * time.Minute)
				condition := meta.FindStatusCondition(s.cfg.Topology().Status.Conditions, v1alpha1.ConditionEnforced)
				if condition == nil || condition.Status != metav1.ConditionTrue || !strings.Contains(condition.Message, tc.wantSays) {
					t.Errorf("the condition is %+v, want it true and to say %q", condition, tc.wantSays)
				}
				if l := s.lease(t); l == nil || time.Since(l.Spec.RenewTime.Time) > time.Minute {
					t.Errorf("the Lease is not renewed: %+v", l)
				}
			})
		})
	}
}

// everyOther is a list of n CPUs that are numbered by turns.
func everyOther(n int) string {
	cpus := make([]string, n)
	for i := range cpus {
		cpus[i] = strconv.Itoa(2 * i)
	}
	return strings.Join(cpus, ",")
}

// TestMessageControls: the condition has no control characters of an error, for which the whole
// status would be refused.
func TestMessageControls(t *testing.T) {
	c := enforced([]interposer.ResourceStatus{{Resource: v1alpha1.DefaultResource}}, errors.New("record: \x1b[2J\n\u009bé"), nil, leftOut{})
	if want := "record:  [2J  é"; c.Message != want {
		t.Errorf("message %q, want %q", c.Message, want)
	}
}
