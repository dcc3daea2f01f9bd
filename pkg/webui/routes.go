// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/webui/documents"
)

// document is one path of the API.
type document struct {
	// rights are the rights that a caller needs to see the document.
	rights []Right
	// heavy marks an expensive document, of which few are made at the same time. See type heavy.
	heavy bool
	make  func(st *state, r *http.Request, c *Caller) (any, error)
}

// documents returns the paths of the API, except the stream. docs/web-api.md has them with their fields.
func (s *Server) documents() map[string]document {
	return map[string]document{
		"/api/v1/whoami":                            {make: s.whoami},
		"/api/v1/cluster":                           {rights: seesCluster(), make: cluster},
		"/api/v1/nodes/{name}":                      {rights: seesPods(), make: node},
		"/api/v1/workloads":                         {rights: seesPods(), make: workloads},
		"/api/v1/explain/{kind}/{namespace}/{name}": {rights: seesPods(), heavy: true, make: explanation},
		"/api/v1/gangs":                             {rights: seesPods(), make: gangs},
		"/api/v1/gangs/{namespace}/{name}":          {rights: seesPods(), heavy: true, make: gang},
		"/api/v1/history/{namespace}/{name}":        {rights: seesEvents(), heavy: true, make: s.history},
		"/api/v1/pools":                             {rights: seesPools(), make: pools},
		"/api/v1/pools/bills":                       {rights: seesMoney(), heavy: true, make: s.bills},
		"/api/v1/pools/hours":                       {rights: seesHours(), heavy: true, make: s.hours},
		"/api/v1/pools/usage":                       {rights: seesMoney(), heavy: true, make: s.usage},
	}
}

// document serves one path of the API.
func (s *Server) document(d document) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(r, d.rights)
		if err != nil {
			refuse(w, r, err)
			return
		}
		if d.heavy {
			ctx, cancel := context.WithTimeout(r.Context(), heavyTime)
			defer cancel()
			r = r.WithContext(ctx)
			leave, err := s.heavy.enter(ctx, c.Name)
			if err != nil {
				refuse(w, r, err)
				return
			}
			defer leave()
		}
		st, err := s.state()
		if err != nil {
			refuse(w, r, err)
			return
		}
		made, err := d.make(st, r, c)
		if err != nil {
			refuse(w, r, err)
			return
		}
		if p, ok := made.(*prepared); ok {
			p.answer(w, r)
			return
		}
		answerJSON(w, r, made)
	})
}

// admit authenticates and authorizes the caller. A known caller's rate is limited before any review, so
// that too many of its requests cost the API server nothing.
func (s *Server) admit(r *http.Request, rights []Right) (*Caller, error) {
	known := s.config.Access.Known(r)
	if known != "" {
		if err := s.limits.allow(known); err != nil {
			return nil, err
		}
	}
	c, err := s.config.Access.Authenticate(r)
	if err != nil {
		return nil, err
	}
	if known == "" || c.Name != known {
		if err := s.limits.allow(c.Name); err != nil {
			return nil, err
		}
	}
	return c, s.config.Access.Authorize(r.Context(), c, rights)
}

// state returns the current state.
func (s *Server) state() (*state, error) {
	if !s.config.Watch.Settled() {
		return nil, &Refusal{http.StatusServiceUnavailable, "the cluster is being read", "try again in a moment"}
	}
	return s.states.fresh()
}

func notFound(format string, args ...any) error {
	return &Refusal{http.StatusNotFound, fmt.Sprintf(format, args...), "it may be gone: look at the list"}
}

// identity is the document about the caller.
type identity struct {
	User    string `json:"user"`
	Mode    string `json:"mode"` // "kubeconfig" or "token"
	Version string `json:"version"`
}

func (s *Server) whoami(_ *state, _ *http.Request, c *Caller) (any, error) {
	return identity{c.Name, s.config.Access.Mode(), s.config.Version}, nil
}

func node(st *state, r *http.Request, _ *Caller) (any, error) {
	name := r.PathValue("name")
	if n := documents.NodeDetailOf(st.view, name); n != nil {
		return n, nil
	}
	return nil, notFound("there is no node %q", name)
}

func cluster(st *state, _ *http.Request, _ *Caller) (any, error) { return st.clusterAnswer() }

func workloads(st *state, _ *http.Request, _ *Caller) (any, error) { return st.workloadsAnswer() }

func explanation(st *state, r *http.Request, _ *Caller) (any, error) {
	kind, namespace, name := r.PathValue("kind"), r.PathValue("namespace"), r.PathValue("name")
	of, ok := map[string]func(*explain.World, string, string) (*explain.Explanation, error){
		"pod": explain.Pod, "podgroup": explain.PodGroup, "job": explain.Job,
	}[kind]
	if !ok {
		return nil, &Refusal{http.StatusNotFound, fmt.Sprintf("nothing explains a %q", kind), "ask about a pod, podgroup or job"}
	}
	e, err := of(st.snapshot.Of(namespace), namespace, name)
	if errors.Is(err, explain.ErrNotFound) {
		return nil, notFound("there is no %s %s/%s", kind, namespace, name)
	}
	return e, err
}

func gangs(st *state, _ *http.Request, _ *Caller) (any, error) {
	return documents.Gangs{Version: st.version, Items: st.gangList}, nil
}

func gang(st *state, r *http.Request, _ *Caller) (any, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if g := documents.GangDetailOf(st.view, &st.snapshot.World.Objects, st.snapshot.Of(namespace), namespace, name); g != nil {
		return g, nil
	}
	return nil, notFound("there is no gang %s/%s", namespace, name)
}

func (s *Server) history(st *state, r *http.Request, _ *Caller) (any, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	w := &st.snapshot.World
	for i := range w.Pods {
		p := &w.Pods[i]
		if p.Namespace != namespace || p.Name != name {
			continue
		}
		events, err := s.config.Events(r.Context(), namespace, name)
		h := documents.HistoryOf(p, events, topologyOf(w.Topologies, p))
		if err != nil {
			h.Problems = append(h.Problems, "events cannot be read: "+reasonOf(err))
		}
		return h, nil
	}
	return nil, notFound("there is no pod %s/%s", namespace, name)
}

// topologyOf returns the topology of a pod's node; nil if there is none.
func topologyOf(all []v1alpha1.NodeGPUTopology, p *v1.Pod) *v1alpha1.NodeGPUTopology {
	for i := range all {
		if p.Spec.NodeName != "" && all[i].Name == p.Spec.NodeName {
			return &all[i]
		}
	}
	return nil
}

// reasonOf returns an API server error's reason in a few words.
func reasonOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	return "the API server does not answer"
}
