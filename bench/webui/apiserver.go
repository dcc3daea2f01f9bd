// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// apiServer serves lists, and watches of pods. Other kinds are reported as not installed.
type apiServer struct {
	lists map[string]runtime.Object // by path, except pods

	mu      sync.Mutex
	pods    []v1.Pod
	version int
	changed []v1.Pod      // changed pods, the first in the version after the list's
	next    chan struct{} // closed at the next change
}

// podsPath is the path of the only kind that changes.
const podsPath = "/api/v1/pods"

func newAPIServer(lists map[string]runtime.Object, pods []v1.Pod) *apiServer {
	return &apiServer{lists: lists, pods: pods, version: 1, next: make(chan struct{})}
}

// change modifies a pod and records the change.
func (s *apiServer) change(at int, to func(*v1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[at].DeepCopy()
	to(p)
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	s.pods[at] = *p
	s.changed = append(s.changed, *p)
	close(s.next)
	s.next = make(chan struct{})
}

// since returns the changes after a version, and the channel that is closed at the next one.
func (s *apiServer) since(version int) (changed []v1.Pod, now int, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed[min(max(version-1, 0), len(s.changed)):], s.version, s.next
}

func (s *apiServer) list(path string) (runtime.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path == podsPath {
		return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}, Items: append([]v1.Pod{}, s.pods...)}, true
	}
	l, ok := s.lists[path]
	return l, ok
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list, ok := s.list(r.URL.Path)
	q := r.URL.Query()
	switch {
	case !ok || r.Method != http.MethodGet:
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case q.Get("sendInitialEvents") != "":
		status(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid) // client-go lists instead
	case q.Get("watch") != "" && r.URL.Path == podsPath:
		s.watchPods(w, r)
	case q.Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // a closed connection is noticed below
		<-r.Context().Done()
	default:
		body, content, err := encode(list, strings.Contains(r.Header.Get("Accept"), protobuf))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", content)
		_, _ = w.Write(body) // no client is left to report an error to
	}
}

// encode encodes an object in protobuf, if it is one of Kubernetes' own and the client accepts
// that.
func encode(o runtime.Object, binary bool) (body []byte, content string, err error) {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil || !binary {
		body, err = json.Marshal(o)
		return body, "application/json", err
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), protobuf)
	body, err = runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, kinds[0].GroupVersion()), o)
	return body, protobuf, err
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error means that the client is gone.
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code), //nolint:gosec // three digits
	})
}

// watchPods sends changes until the client disconnects.
func (s *apiServer) watchPods(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	w.Header().Set("Content-Type", protobuf+";stream=watch")
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), protobuf)
	frames := info.StreamSerializer.NewFrameWriter(w)
	flush := http.NewResponseController(w)
	events := scheme.Codecs.EncoderForVersion(info.StreamSerializer.Serializer, schema.GroupVersion{Version: "v1"})
	for {
		changed, now, next := s.since(from)
		for i := range changed {
			body, _, err := encode(&changed[i], true)
			var event bytes.Buffer
			if err == nil {
				err = events.Encode(&metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Raw: body}}, &event)
			}
			if err == nil {
				_, err = frames.Write(event.Bytes())
			}
			if err != nil {
				return
			}
		}
		from = now
		if flush.Flush() != nil {
			return
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
	}
}

// serve serves until the process ends.
func (s *apiServer) serve(ctx context.Context) (url string, err error) {
	ln, err := listen(ctx)
	if err != nil {
		return "", fmt.Errorf("serve the cluster: %w", err)
	}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(ln) }() // it ends with the process
	return "http://" + ln.Addr().String(), nil
}
