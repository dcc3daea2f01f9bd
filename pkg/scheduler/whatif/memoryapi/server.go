// SPDX-License-Identifier: Apache-2.0

package memoryapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

// maxBody bounds a request's body.
const maxBody = 4 << 20

// target is the object or collection that a path names.
type target struct {
	kind                       *whatif.Kind
	namespace, name, subobject string
}

// handler serves a Store.
type handler struct{ store *Store }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version, rest, ok := splitPath(r.URL.Path)
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such path: "+r.URL.Path)
		return
	case rest == "":
		discover(w, version)
		return
	}
	t, ok := find(version, rest)
	if !ok {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such resource: "+r.URL.Path)
		return
	}
	switch {
	case r.Method == http.MethodGet && t.name == "":
		h.collection(w, r, t)
	case r.Method == http.MethodGet:
		h.answer(w, t, h.store.Get(t.kind.Resource, t.namespace, t.name))
	case r.Method == http.MethodPatch && t.name != "":
		h.patch(w, r, t)
	case t.kind == whatif.PodKind && t.name != "":
		h.servePod(w, r, t)
	default:
		notSimulated(w, r)
	}
}

// servePod serves the requests that schedulers make for pods only.
func (h handler) servePod(w http.ResponseWriter, r *http.Request, t target) {
	switch r.Method + " " + t.subobject {
	case "POST binding":
		h.bind(w, r, t)
	case "POST eviction", "DELETE ":
		h.evict(w, t)
	default:
		notSimulated(w, r)
	}
}

func notSimulated(w http.ResponseWriter, r *http.Request) {
	refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method+" of "+r.URL.Path+" is not simulated")
}

// splitPath cuts a path behind its group and version.
func splitPath(path string) (version, rest string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	n := 2
	if parts[0] == "apis" {
		n = 3
	}
	if len(parts) < n || parts[0] != "api" && parts[0] != "apis" {
		return "", "", false
	}
	return strings.Join(parts[1:n], "/"), strings.Join(parts[n:], "/"), true
}

// find reads the rest of a path: [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBOBJECT]].
func find(version, rest string) (t target, ok bool) {
	parts := strings.Split(rest, "/")
	if len(parts) > 2 && parts[0] == "namespaces" {
		t.namespace, parts = parts[1], parts[2:]
	}
	i := slices.IndexFunc(whatif.Kinds(), func(k *whatif.Kind) bool { return k.APIVersion == version && k.Resource == parts[0] })
	if i < 0 || len(parts) > 3 {
		return target{}, false
	}
	t.kind = whatif.Kinds()[i]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subobject = parts[2]
	}
	return t, true
}

// discover writes the resources of a version.
func discover(w http.ResponseWriter, version string) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version}
	for _, k := range whatif.Kinds() {
		if k.APIVersion == version {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Resource, Kind: k.Kind, Namespaced: k.Namespaced, Verbs: metav1.Verbs{"get", "list", "watch", "patch"},
			})
		}
	}
	if len(list.APIResources) == 0 {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such version: "+version)
		return
	}
	write(w, http.StatusOK, list)
}

func (h handler) answer(w http.ResponseWriter, t target, raw []byte) {
	if raw == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, t.kind.Resource+" "+t.name+" not found")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw) // the client may be gone
}

// patch changes an object as an API server does. Only pods have lists that are merged by key where
// schedulers write.
func (h handler) patch(w http.ResponseWriter, r *http.Request, t target) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	merge := jsonpatch.MergePatch
	if t.kind == whatif.PodKind && r.Header.Get("Content-Type") == string(types.StrategicMergePatchType) {
		merge = func(raw, body []byte) ([]byte, error) { return strategicpatch.StrategicMergePatch(raw, body, v1.Pod{}) }
	}
	h.change(w, t, func(raw []byte) ([]byte, error) { return merge(raw, body) })
}

func (h handler) change(w http.ResponseWriter, t target, fn func([]byte) ([]byte, error)) {
	raw, _, err := h.store.change(t.kind.Resource, t.namespace, t.name, fn)
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		return
	}
	h.answer(w, t, raw)
}

// changePod is change for the typed object.
func (h handler) changePod(w http.ResponseWriter, t target, fn func(*v1.Pod)) {
	h.change(w, t, func(raw []byte) ([]byte, error) {
		pod := &v1.Pod{}
		if err := json.Unmarshal(raw, pod); err != nil {
			return nil, err
		}
		fn(pod)
		return json.Marshal(pod)
	})
}

// bind puts a pod on its node, with the annotations of the Binding and the condition that the API
// server writes.
func (h handler) bind(w http.ResponseWriter, r *http.Request, t target) {
	binding := &v1.Binding{}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(binding); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	h.changePod(w, t, func(pod *v1.Pod) {
		pod.Spec.NodeName = binding.Target.Name
		for k, v := range binding.Annotations {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
		}
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	})
}

// evict marks a pod as terminating, at the end of its grace period.
func (h handler) evict(w http.ResponseWriter, t target) {
	h.store.leave(t.namespace, t.name)
	h.changePod(w, t, func(pod *v1.Pod) {
		if pod.DeletionTimestamp == nil {
			seconds := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
			now := metav1.NewTime(time.Now().Add(time.Duration(seconds) * time.Second))
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &seconds
		}
	})
}

func write(w http.ResponseWriter, code int, obj any) {
	text, err := json.Marshal(obj)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // the client may be gone
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	write(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// serve serves requests at ln until ctx ends.
func serve(ctx context.Context, ln *listener, store *Store) {
	server := &http.Server{Handler: handler{store}, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // the process does not need it any more
	_ = server.Serve(ln)                                  // it ends with ctx
}
