// SPDX-License-Identifier: Apache-2.0

package graphclient

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// topologyServer is an API server that begins to know ClusterTopology late.
type topologyServer struct {
	mu      sync.Mutex
	refuse  int    // status of every answer; 0: it knows the kind
	objects string // in the list
	watches chan string
	asked   map[string]int // selector -> requests
}

func (s *topologyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse, objects := s.refuse, s.objects
	s.asked[r.URL.Query().Get("fieldSelector")]++
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case refuse != 0:
		w.WriteHeader(refuse)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, refuse, map[int]string{404: "NotFound", 403: "Forbidden"}[refuse])
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity) // no watch list here
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid"}`)
	case r.URL.Query().Get("watch") == "":
		fmt.Fprintf(w, `{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"ClusterTopologyList","metadata":{"resourceVersion":"5"},"items":[%s]}`, objects)
	default:
		w.WriteHeader(http.StatusOK)
		if r.URL.Query().Get("resourceVersion") == "" { // what there is comes first
			fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":%s}\n", objects)
		}
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-s.watches:
				fmt.Fprintln(w, event)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

func topologyObject(level string) string {
	return fmt.Sprintf(`{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"ClusterTopology","metadata":{"name":"default","resourceVersion":"6"},`+
		`"spec":{"levels":[{"name":%q,"nodeLabel":"a/b","bandwidthGBps":"12.5","latencyMicros":7}]}}`, level)
}

func TestTopologyInformer(t *testing.T) {
	for name, refuse := range map[string]int{"the kind is there": 0, "the kind comes late": http.StatusNotFound, "the role comes late": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			s := &topologyServer{refuse: refuse, objects: topologyObject("rack"), watches: make(chan string), asked: map[string]int{}}
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			informer, err := NewTopologyInformer(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			go informer.RunWithContext(ctx)
			testkit.Eventually(t, 2*time.Minute, "the informer is in sync", func(context.Context) (bool, string) { return informer.HasSynced(), "" })
			if refuse != 0 {
				if got := informer.GetStore().ListKeys(); len(got) > 0 {
					t.Fatalf("there are %v", got)
				}
				s.mu.Lock()
				s.refuse = 0
				s.mu.Unlock()
			}
			has := func(level string) func(context.Context) (bool, string) {
				return func(context.Context) (bool, string) {
					obj, ok, _ := informer.GetStore().GetByKey(v1alpha1.ClusterTopologyName)
					return ok && obj.(*v1alpha1.ClusterTopology).Spec.Levels[0].Name == level, fmt.Sprint(obj)
				}
			}
			testkit.Eventually(t, 2*time.Minute, "the object is read", has("rack"))
			s.watches <- `{"type":"MODIFIED","object":` + topologyObject("leaf") + `}`
			testkit.Eventually(t, 2*time.Minute, "the change is read", has("leaf"))
			s.mu.Lock()
			s.refuse = http.StatusForbidden
			before := s.asked["metadata.name=default"]
			s.mu.Unlock()
			server.CloseClientConnections()
			testkit.Eventually(t, 2*time.Minute, "it is refused", func(context.Context) (bool, string) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.asked["metadata.name=default"] > before+2, ""
			})
			if ok, what := has("leaf")(ctx); !ok {
				t.Errorf("what was known is gone: %s", what)
			}
			cancel()
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.asked) != 1 || s.asked["metadata.name=default"] == 0 {
				t.Errorf("asked for %v, want the one object only", s.asked)
			}
		})
	}
}
