// SPDX-License-Identifier: Apache-2.0

package clusterobjects

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// TestRead: kinds that are needed are read or an error; others are read, or none and said. How pages and
// versions follow each other is tested with package check, whose answers depend on it.
func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse  map[string]int // by the end of the path
		answers map[string]string
		want    string
		wantErr string
		said    string
		unread  string
	}{
		"all": {want: "1 nodes, 1 pods, 1 claims, 1 workloads, a fabric"},
		"what is not installed": {
			refuse: map[string]int{"workloads": 404, "clustertopologies": 404}, want: "1 nodes, 1 pods, 1 claims", unread: "[clustertopologies workloads]",
		},
		"what may not be read and is not needed": {
			refuse: map[string]int{"workloads": 403, "persistentvolumeclaims": 403}, want: "1 nodes, 1 pods, a fabric",
			said: "persistentvolumeclaims, workloads may not be read, and are taken to be none", unread: "[persistentvolumeclaims workloads]",
		},
		"what may not be read and is needed":   {refuse: map[string]int{"clustertopologies": 403}, wantErr: "list clustertopologies: no"},
		"a needed kind that is never missing":  {refuse: map[string]int{"pods": 404}, wantErr: "list pods: no"},
		"a namespace that may not be read":     {refuse: map[string]int{"leases": 403}, wantErr: "list leases in system: no"},
		"an API server that does not answer":   {refuse: map[string]int{"workloads": 500}, wantErr: "list workloads: no"},
		"an object that cannot be read":        {answers: map[string]string{"workloads": `{"metadata":{"name":"w","namespace":"n"},"spec":{"podSets":3}}`}, wantErr: "list workloads: Workload n/w: spec.podSets: want a list, not a number"},
		"a page that is no list of the server": {answers: map[string]string{"pods": `<html>`}, wantErr: "list pods: invalid character '<' looking for beginning of value"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
				w.Header().Set("Content-Type", "application/json")
				if code := tc.refuse[resource]; code != 0 {
					reason := map[int]string{403: "Forbidden", 404: "NotFound", 500: "InternalError"}[code]
					w.WriteHeader(code)
					fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"no"}`, reason, code)
					return
				}
				item := `{"metadata":{"name":"default"}}`
				if tc.answers[resource] != "" {
					item = tc.answers[resource]
				}
				if !map[string]bool{
					"/api/v1/pods": true, "/api/v1/nodes": true, "/apis/topology.nvtopo.dev/v1alpha1/clustertopologies": true,
					"/api/v1/namespaces/mine/persistentvolumeclaims": true, "/apis/kueue.x-k8s.io/v1beta2/workloads": true,
				}[r.URL.Path] {
					item = ""
				}
				fmt.Fprintf(w, `{"metadata":{"resourceVersion":"42"},"items":[%s]}`, item)
			}))
			defer server.Close()
			o, err := Read(t.Context(), kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}), &Request{
				Needed: []Kind{Pods, Nodes, Leases}, More: func(*Objects) []Kind { return []Kind{ClusterTopologies} }, Optional: []Kind{Claims, Workloads},
				Namespaces: map[Kind]string{Leases: "system", Claims: "mine"}, Clock: clocktesting.NewFakePassiveClock(start),
			})
			if err != nil || tc.wantErr != "" {
				if err == nil || err.Error() != tc.wantErr {
					t.Errorf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			unread := ""
			if len(o.Unread) > 0 {
				unread = fmt.Sprint(slices.Sorted(maps.Keys(o.Unread)))
			}
			if diff := cmp.Diff([]string{tc.want, tc.said, tc.unread, start.String()}, []string{counts(o), o.Forbidden(), unread, o.Now.String()}); diff != "" {
				t.Errorf("objects, what is said, kinds that are not read (-want +got):\n%s", diff)
			}
		})
	}
}
