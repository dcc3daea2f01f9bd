// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// auditEvent is the part of an audit log's line that this test reads.
type auditEvent struct {
	Verb      string
	UserAgent string
	ObjectRef struct{ Resource, Subresource, Name string }
	// ResponseStatus.Code is the HTTP status.
	ResponseStatus struct{ Code int }
}

// schedulerRequests counts the scheduler's requests that name a pod, in the
// words "verb resource[/subresource]", by pod.
func schedulerRequests(path string) (map[string]map[string]int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		if !strings.HasPrefix(e.UserAgent, "nvtopo-scheduler") || e.ObjectRef.Resource != "pods" || e.ObjectRef.Name == "" {
			continue
		}
		what := e.Verb + " pods"
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		if e.ResponseStatus.Code >= 300 {
			what += fmt.Sprint(" answered ", e.ResponseStatus.Code)
		}
		if out[e.ObjectRef.Name] == nil {
			out[e.ObjectRef.Name] = map[string]int{}
		}
		out[e.ObjectRef.Name][what]++
	}
	return out, lines.Err()
}

// TestWritesPerPod counts, in the API server's own log, what a bound pod costs.
func TestWritesPerPod(t *testing.T) {
	t.Run("as shipped", func(t *testing.T) {
		testWritesPerPod(t, nil, map[string]int{"patch pods": 1, "create pods/binding": 1})
	})
	t.Run("with nominated node names", func(t *testing.T) {
		testWritesPerPod(t, []string{announcing}, map[string]int{"patch pods": 1, "patch pods/status": 1, "create pods/binding": 1})
	})
}

func testWritesPerPod(t *testing.T, flags []string, wantPreBind map[string]int) {
	t.Helper()
	const each = 12
	l := newTestEnv(t, devcluster.Config{AuditLog: true})
	l.schedulerFlags = flags
	l.install(t)
	nodes := []string{"n0", "n1", "n2", "foreign"} // the last is for the stock profile's pods
	for _, node := range nodes {
		l.node(t, node, "dgx2")
	}
	l.startScheduler(t, profile{name: preBindProfile, write: "PreBind"}, profile{name: bindingProfile, write: "Binding"})

	// A pod that came before its node's graph would be refused once, in writing.
	for _, node := range nodes {
		l.create(t, gpuPod("first-"+node, preBindProfile, 1).NodeSelector(host(node)).Obj())
		l.bound(t, "first-"+node)
	}

	kinds := map[string]struct {
		profile string
		gpus    int
		want    map[string]int
	}{
		"prebind":     {preBindProfile, 2, wantPreBind},
		"binding":     {bindingProfile, 1, map[string]int{"create pods/binding": 1}},
		"prebind-cpu": {preBindProfile, 0, map[string]int{"create pods/binding": 1}},
		"binding-cpu": {bindingProfile, 0, map[string]int{"create pods/binding": 1}},
		"stock":       {defaultProfile, 1, map[string]int{"create pods/binding": 1}},
	}
	var names []string
	for kind, tc := range kinds {
		for i := range each {
			node := nodes[i%3]
			if kind == "stock" {
				node = nodes[3]
			}
			pod := gpuPod(fmt.Sprintf("%s.%d", kind, i), tc.profile, tc.gpus).NodeSelector(host(node)).Obj()
			l.create(t, pod)
			names = append(names, pod.Name)
		}
	}
	for _, name := range names {
		l.bound(t, name)
	}
	// What follows a binding, if anything does, follows at once.
	time.Sleep(time.Second)
	var got map[string]map[string]int
	testkit.Eventually(t, waitLimit, "the audit log has every binding", func(context.Context) (bool, string) {
		var err error
		if got, err = schedulerRequests(l.AuditLog()); err != nil {
			return false, err.Error()
		}
		n := 0
		for _, requests := range got {
			n += requests["create pods/binding"]
		}
		return n >= len(names), fmt.Sprint(n, " bindings")
	})
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		total := map[string]int{}
		for i := range each {
			name := fmt.Sprintf("%s.%d", kind, i)
			if d := cmp.Diff(kinds[kind].want, got[name]); d != "" {
				t.Errorf("requests for pod %s (-want +got):\n%s", name, d)
			}
			for what, n := range got[name] {
				total[what] += n
			}
		}
		for _, what := range slices.Sorted(maps.Keys(total)) {
			t.Logf("%-12s %-20s %.2f per pod", kind, what, float64(total[what])/each)
		}
	}
}
