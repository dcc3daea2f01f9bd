// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// lists is an API server that has lists only. It answers the requests for a resource
// one after the other, the last answer again and again, and remembers them all.
type lists struct {
	answers map[string][]answer
	asked   []string
}

type answer struct {
	code                int
	reason, items, next string
}

func (l *lists) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	q := r.URL.Query()
	l.asked = append(l.asked, fmt.Sprintf("%s rv=%s match=%s continue=%s", resource, q.Get("resourceVersion"), q.Get("resourceVersionMatch"), q.Get("continue")))
	var a answer
	if all := l.answers[resource]; len(all) > 0 {
		a = all[0]
		if len(all) > 1 {
			l.answers[resource] = all[1:]
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if a.code != 0 {
		w.WriteHeader(a.code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"no"}`, a.reason, a.code)
		return
	}
	kind := map[string][2]string{
		"pods": {"v1", "PodList"}, "nodes": {"v1", "NodeList"}, "leases": {"coordination.k8s.io/v1", "LeaseList"},
		"nodegputopologies": {"topology.nvtopo.dev/v1alpha1", "NodeGPUTopologyList"},
		"podgroups":         {"scheduling.x-k8s.io/v1alpha1", "PodGroupList"}, "clustertopologies": {"topology.nvtopo.dev/v1alpha1", "ClusterTopologyList"},
	}[resource]
	fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"42","continue":%q},"items":[%s]}`, kind[0], kind[1], a.next, a.items)
}

// TestReadConsistency: one read is of one moment.
func TestReadConsistency(t *testing.T) {
	const (
		exact = " rv=42 match=Exact continue="
		fresh = " rv= match= continue="
		next  = " rv= match= continue=more"
	)
	rest4 := []string{"nodes" + exact, "leases" + exact, "nodegputopologies" + exact}
	pod := func(name string) string { return `{"metadata":{"name":"` + name + `"}}` }
	graph := `{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","metadata":{"name":"n"},"spec":{"nodeUID":"u"}}`
	tests := map[string]struct {
		answers    map[string][]answer
		want       []string // requests
		pods, ngts int
		gangs      bool
		err        string
	}{
		"everything at the version of the pods": {
			answers: map[string][]answer{"pods": {{items: pod("a")}}, "nodegputopologies": {{items: graph}}},
			want:    append([]string{"pods" + fresh}, rest4...), pods: 1, ngts: 1,
		},
		"pages": {
			answers: map[string][]answer{"pods": {{items: pod("a"), next: "more"}, {items: pod("b")}}, "nodes": {{next: "more"}, {}}},
			want:    []string{"pods" + fresh, "pods" + next, "nodes" + exact, "nodes" + next, "leases" + exact, "nodegputopologies" + exact}, pods: 2,
		},
		"no such resource": {
			answers: map[string][]answer{"nodegputopologies": {{code: 404, reason: "NotFound"}}},
			want:    append([]string{"pods" + fresh}, rest4...),
		},
		"what gangs are judged by, if there are any": {
			answers: map[string][]answer{
				"pods":              {{items: `{"metadata":{"name":"a","namespace":"n","labels":{"scheduling.x-k8s.io/pod-group":"g"}}}`}},
				"podgroups":         {{items: `{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup","metadata":{"name":"g","namespace":"n"}}`}},
				"clustertopologies": {{items: `{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"ClusterTopology","metadata":{"name":"default"}}`}},
			},
			want: append(append([]string{"pods" + fresh}, rest4...), "podgroups"+exact, "clustertopologies"+exact), pods: 1, gangs: true,
		},
		"gangs without PodGroups, and without a ClusterTopology": {
			answers: map[string][]answer{
				"pods":              {{items: `{"metadata":{"name":"a","annotations":{"nvtopo.dev/gang":"g"}}}`}},
				"clustertopologies": {{code: 404, reason: "NotFound"}},
			},
			want: append(append([]string{"pods" + fresh}, rest4...), "clustertopologies"+exact), pods: 1,
		},
		"a snapshot that grew too old is begun anew": {
			answers: map[string][]answer{"pods": {{items: pod("a")}, {items: pod("b")}}, "nodes": {{code: 410, reason: "Expired"}, {}}},
			want:    append([]string{"pods" + fresh, "nodes" + exact, "pods" + fresh}, rest4...), pods: 1,
		},
		"a resource with an etcd of its own": {
			answers: map[string][]answer{"leases": {{code: 504, reason: "Timeout"}, {}}},
			want:    []string{"pods" + fresh, "nodes" + exact, "leases" + exact, "leases" + fresh, "nodegputopologies" + exact},
		},
		"a version that always grew too old": {
			answers: map[string][]answer{"nodes": {{code: 410, reason: "Expired"}}},
			want:    []string{"pods" + fresh, "nodes" + exact, "pods" + fresh, "nodes" + exact, "pods" + fresh, "nodes" + exact},
			err:     "list nodes",
		},
		"no right to read": {
			answers: map[string][]answer{"leases": {{code: 403, reason: "Forbidden"}}},
			want:    []string{"pods" + fresh, "nodes" + exact, "leases" + exact}, err: "list leases in nvtopo-system",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := &lists{answers: tc.answers}
			server := httptest.NewServer(l)
			defer server.Close()
			w, err := Read(t.Context(), kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}), "nvtopo-system")
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, l.asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if err == nil && (len(w.PodGroups) == 1 && w.ClusterTopology != nil) != tc.gangs {
				t.Errorf("PodGroups %v, ClusterTopology %v", w.PodGroups, w.ClusterTopology)
			}
			if err == nil && (len(w.Pods) != tc.pods || len(w.Topologies) != tc.ngts || w.Now.IsZero()) {
				t.Errorf("%d pods, %d topologies at %v, want %d and %d", len(w.Pods), len(w.Topologies), w.Now, tc.pods, tc.ngts)
			}
		})
	}
}

// TestReadSchedulerErrors: ReadScheduler refuses what is no state.
func TestReadSchedulerErrors(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"version":`)) }))
	defer server.Close()
	if _, err := ReadScheduler(t.Context(), server.Client(), server.URL); err == nil || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("half an answer: %v, want an error that names %s", err, server.URL)
	}
	for _, base := range []string{"", "http://x:1", "https://", "https://x:1/path", "::"} {
		if _, err := ReadScheduler(t.Context(), server.Client(), base); err == nil || !strings.Contains(err.Error(), "https://host:port") {
			t.Errorf("address %q: %v, want that an address is asked for", base, err)
		}
	}
}
