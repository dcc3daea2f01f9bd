// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// unhealthyReason is the reason of a GPU that is unhealthy by a fault.
const unhealthyReason = "failed by nvtopo-devcluster"

// simulated holds the hardware and settings that the programs of one simulated node see.
type simulated struct {
	spec NodeSpec
	opts ExporterOptions

	mu       sync.Mutex
	graph    *nvtopo.Graph // with the health of GPUs; guarded by mu
	agentOff bool          // guarded by mu
	changed  chan exporter.Event
}

func newSimulated(spec *NodeSpec, opts ExporterOptions) (*simulated, error) {
	graph, err := spec.Graph()
	if err != nil {
		return nil, err
	}
	return &simulated{spec: *spec, opts: opts, graph: graph, changed: make(chan exporter.Event, 1)}, nil
}

// Graph returns the link graph as the driver would report it now.
func (s *simulated) Graph(context.Context) (*nvtopo.Graph, []exporter.Problem, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph, nil, nil
}

// Events has the exporter read again when a GPU fails or heals.
func (s *simulated) Events(context.Context) <-chan exporter.Event { return s.changed }

// set adopts faults, and returns the number of healthy GPUs.
func (s *simulated) set(f *Faults) (healthy int, err error) {
	graph, err := s.spec.Graph()
	if err != nil {
		return 0, err
	}
	for gpu := range f.GPUs {
		if gpu >= graph.Len() {
			return 0, fmt.Errorf("node %s has no GPU %d: its %d GPUs are 0 to %d", s.spec.Name, gpu, graph.Len(), graph.Len()-1)
		}
	}
	copied := *graph // GPUs alone are changed: a graph is shared
	copied.GPUs = slices.Clone(graph.GPUs)
	for gpu := range f.GPUs {
		copied.GPUs[gpu].Unhealthy = unhealthyReason
	}
	s.mu.Lock()
	s.graph, s.agentOff = &copied, f.Agent || f.Node
	s.mu.Unlock()
	select {
	case s.changed <- exporter.Event{}:
	default: // it will read anyway
	}
	return graph.Len() - len(f.GPUs), nil
}

// errAgentOff is the error of renewing a dead agent's Lease.
var errAgentOff = errors.New("the node agent has ended (nvtopo-devcluster fail agent)")

// withoutAgent lets all requests of the node's programs through but those of an agent that has ended. The
// exporter here stands in for the agent, whose Lease then runs out as that of a dead one.
func (s *simulated) withoutAgent(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		s.mu.Lock()
		off := s.agentOff
		s.mu.Unlock()
		if off && strings.HasSuffix(r.URL.Path, "/leases/"+nodelease.AgentPrefix+s.spec.Name) {
			return nil, errAgentOff
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
