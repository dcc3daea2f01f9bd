// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestGangsInShort runs gangs on a small scale: all are placed, in one plan each, beside others
// that wait.
func TestGangsInShort(t *testing.T) {
	out := t.TempDir()
	tempFolder(t)
	var stdout bytes.Buffer
	args := []string{
		"-short", "-workloads", "four,four-late,four-beside-gangs,gang-4", "-profiles", profileBinding, "-racks", "5",
		"-scheduler", schedulerBinary(t), "-out", out,
	}
	if err := command(t.Context(), args, &stdout, t.Output()); err != nil {
		t.Fatal(err)
	}
	_, res := resultIn(t, filepath.Join(out, resultFile))
	pods, plans := map[string]int{}, map[string]int{}
	for i := range res.Cells {
		c := &res.Cells[i]
		pods[c.Workload], plans[c.Workload] = c.Pods, c.Plans
		if c.Attempts["scheduled"] != float64(c.Pods) {
			t.Errorf("%s: attempts %v, want %d scheduled", c.Workload, c.Attempts, c.Pods)
		}
		if c.Plans > 0 && !(c.PlanP99Ms > 0) {
			t.Errorf("%s: plans took %v ms", c.Workload, c.PlanP99Ms)
		}
	}
	if diff := cmp.Diff(map[string]int{"four": 60, "four-late": 100, "four-beside-gangs": 100, "gang-4": 61}, pods); diff != "" {
		t.Errorf("pods (-want,+got)\n%s", diff)
	}
	if plans["gang-4"] < 15 {
		t.Errorf("%v plans, want one for each of 15 gangs", plans)
	}
	containsAll(t, stdout.String(), "Gangs beside single pods", "| 50, four-beside-gangs", "| 50, gang-4")
}

func TestPodsOfGangs(t *testing.T) {
	t.Parallel()
	w := findWorkload("gang-4")
	pods := w.pods(w.fitting(10, 50), 1, "topology-aware-scheduler")
	var gangs []string
	for _, pod := range pods {
		gangs = append(gangs, pod.Annotations[gangrequest.GangKey])
	}
	a, b := "gang-00000", "gang-00001"
	if diff := cmp.Diff([]string{"", a, a, a, a, b, b, b, b}, gangs); diff != "" {
		t.Errorf("gangs (-want,+got)\n%s", diff)
	}
	for name, want := range map[string]int{"gang-4": 97, "gang-64": 65, "gang-1000": 0} {
		if got := findWorkload(name).fitting(100, 49); got != want {
			t.Errorf("%s: %d of 100 pods on 49 nodes, want %d", name, got, want)
		}
	}
}
