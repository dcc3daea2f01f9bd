// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// stubAPI answers the exporter's HTTP requests from memory, as a transport, so
// that timing tests can run in virtual time. It knows just enough of server-side
// apply: what a manager applied before and does not any more goes away.
type stubAPI struct {
	mu       sync.Mutex
	objects  map[string]map[string]any // path -> object; guarded by mu
	applied  map[string][]string       // path, field and manager -> keys applied; guarded by mu
	requests []request                 // guarded by mu

	// refuse may answer a request in the server's stead.
	refuse func(r request) *metav1.Status
	// mutate may change an object before it is stored, as a webhook does.
	mutate func(path string, obj map[string]any)
}

type request struct {
	method, path, query, contentType string
	body                             map[string]any
}

func (r request) String() string { return r.method + " " + r.path }

const (
	nodePath     = "/api/v1/nodes/n1"
	topologyPath = "/apis/topology.nvtopo.dev/v1alpha1/nodegputopologies/n1"
	leasePath    = "/apis/coordination.k8s.io/v1/namespaces/nvtopo-system/leases/exporter-n1"
	agentPath    = "/apis/coordination.k8s.io/v1/namespaces/nvtopo-system/leases/agent-n1"
)

func newStub() *stubAPI {
	return &stubAPI{
		objects: map[string]map[string]any{nodePath: nodeObject("uid-1", "boot-1")},
		applied: map[string][]string{},
	}
}

func nodeObject(uid, boot string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": "n1", "uid": uid, "labels": map[string]any{"kubernetes.io/hostname": "n1"}},
		"status":   map[string]any{"nodeInfo": map[string]any{"bootID": boot}},
	}
}

func (s *stubAPI) clients(tb testing.TB) (kubernetes.Interface, dynamic.Interface) {
	tb.Helper()
	cfg := &rest.Config{Host: "http://stub", Transport: s, QPS: -1}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return kube, dyn
}

// RoundTrip implements http.RoundTripper.
func (s *stubAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	req := request{method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, contentType: r.Header.Get("Content-Type")}
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &req.body); err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, req)
	if s.refuse != nil {
		if st := s.refuse(req); st != nil {
			return respond(int(st.Code), st)
		}
	}
	if req.method == http.MethodGet {
		if obj, ok := s.objects[req.path]; ok {
			return respond(http.StatusOK, obj)
		}
		return respond(http.StatusNotFound, failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
	}
	return s.patch(req)
}

func (s *stubAPI) patch(req request) (*http.Response, error) {
	path, isStatus := strings.CutSuffix(req.path, "/status")
	obj, exists := s.objects[path]
	meta, _ := req.body["metadata"].(map[string]any)
	uid, hasUID := meta["uid"]
	switch {
	case isStatus && !exists:
		return respond(http.StatusNotFound, failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
	case hasUID && (!exists || obj["metadata"].(map[string]any)["uid"] != uid):
		return respond(http.StatusConflict, failure(http.StatusConflict, metav1.StatusReasonConflict, "uid mismatch"))
	case !exists:
		obj = map[string]any{"apiVersion": req.body["apiVersion"], "kind": req.body["kind"], "metadata": map[string]any{"name": meta["name"]}}
		s.objects[path] = obj
	}
	have := obj["metadata"].(map[string]any)
	switch {
	case isStatus:
		obj["status"] = req.body["status"]
	case strings.HasPrefix(path, "/api/v1/nodes/"):
		s.mergeMarks(req, "labels", have, meta)
		s.mergeMarks(req, "annotations", have, meta)
	default:
		obj["spec"], have["ownerReferences"] = req.body["spec"], meta["ownerReferences"]
	}
	if s.mutate != nil {
		s.mutate(path, obj)
	}
	return respond(http.StatusOK, obj)
}

func (s *stubAPI) mergeMarks(req request, field string, have, meta map[string]any) {
	by := req.path + field + req.query // the manager is in the query
	old, _ := have[field].(map[string]any)
	marks := maps.Clone(old)
	if marks == nil {
		marks = map[string]any{}
	}
	for _, k := range s.applied[by] {
		delete(marks, k)
	}
	want, _ := meta[field].(map[string]any)
	maps.Copy(marks, want)
	have[field] = marks
	s.applied[by] = slices.Collect(maps.Keys(want))
}

func respond(code int, obj any) (*http.Response, error) {
	if st, ok := obj.(*metav1.Status); ok && st.Reason == "" {
		// What a server says of a path it does not serve.
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(st.Message))}, nil
	}
	b, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b))}, nil
}

func failure(code int32, reason metav1.StatusReason, msg string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: msg,
	}
}

// took returns and forgets the requests made so far, as "METHOD path".
func (s *stubAPI) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.requests {
		out = append(out, r.String())
	}
	s.requests = nil
	return out
}

// last returns the latest request to a path.
func (s *stubAPI) last(tb testing.TB, method, path string) request {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.Backward(s.requests) {
		if r.method == method && r.path == path {
			return r
		}
	}
	tb.Fatalf("no %s %s among %v", method, path, s.requests)
	return request{}
}

func (s *stubAPI) edit(path string, change func(obj map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.objects[path])
}

func (s *stubAPI) topology(tb testing.TB) *v1alpha1.NodeGPUTopology {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, ok := s.objects[topologyPath]
	if !ok {
		return nil
	}
	b, err := json.Marshal(obj)
	if err != nil {
		tb.Fatal(err)
	}
	t := &v1alpha1.NodeGPUTopology{}
	if err := json.Unmarshal(b, t); err != nil {
		tb.Fatal(err)
	}
	return t
}

func (s *stubAPI) labels() map[string]string { return s.marks("labels") }

func (s *stubAPI) annotations() map[string]string { return s.marks("annotations") }

func (s *stubAPI) marks(field string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	have, _ := s.objects[nodePath]["metadata"].(map[string]any)[field].(map[string]any)
	for k, v := range have {
		out[k] = fmt.Sprint(v)
	}
	return out
}
