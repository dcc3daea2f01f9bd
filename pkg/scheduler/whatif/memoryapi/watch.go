// SPDX-License-Identifier: Apache-2.0

package memoryapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

// collection lists or watches a resource.
func (h handler) collection(w http.ResponseWriter, r *http.Request, t target) {
	query := r.URL.Query()
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	switch {
	case err != nil || query.Get("labelSelector") != "":
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "fieldSelector, labelSelector: not of this server")
		return
	case query.Get("sendInitialEvents") != "": // the client then lists
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents: not of this server")
		return
	}
	selects := func(o *whatif.Object) bool {
		return (t.namespace == "" || t.namespace == o.Namespace) && (selector.Empty() || selector.Matches(fieldsOf(o)))
	}
	if on, err := strconv.ParseBool(query.Get("watch")); err != nil || !on {
		h.list(w, t, selects)
		return
	}
	from, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "resourceVersion: want that of a list")
		return
	}
	h.watch(w, r, t, from, selects)
}

// list writes the objects as they are stored, without their kind, which clients know.
func (h handler) list(w http.ResponseWriter, t target, selects func(*whatif.Object) bool) {
	objects, version := h.store.List(t.kind.Resource)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"%d"},"items":[`, t.kind.APIVersion, t.kind.Kind, version)
	separator := ""
	for _, o := range objects {
		if selects(o) {
			_, _ = io.WriteString(w, separator) // the client may be gone
			_, _ = w.Write(o.Raw)
			separator = ","
		}
	}
	_, _ = io.WriteString(w, "]}")
}

// watch writes changes until the client disconnects.
func (h handler) watch(w http.ResponseWriter, r *http.Request, t target, from uint64, selects func(*whatif.Object) bool) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	if out.Flush() != nil {
		return
	}
	h.store.watch(t.kind.Resource)
	for {
		events, next := h.store.after(from)
		for _, e := range events {
			from = e.version
			if e.object.Kind == t.kind && selects(e.object) {
				fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", e.kind, e.object.Raw)
			}
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-next:
		}
	}
}

// fieldsOf returns the fields by which schedulers select.
func fieldsOf(o *whatif.Object) fields.Set {
	out := fields.Set{"metadata.name": o.Name, "metadata.namespace": o.Namespace}
	if o.Kind == whatif.PodKind {
		var pod struct {
			Spec struct {
				NodeName string `json:"nodeName"`
			} `json:"spec"`
			Status struct {
				Phase v1.PodPhase `json:"phase"`
			} `json:"status"`
		}
		_ = json.Unmarshal(o.Raw, &pod) // it was stored as a pod; one without these fields has none
		out["spec.nodeName"], out["status.phase"] = pod.Spec.NodeName, string(pod.Status.Phase)
	}
	return out
}
