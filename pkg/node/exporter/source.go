// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// Problem is something that a reading could not find out.
type Problem = nvml.Problem

// Event says that the source should be read again.
type Event = nvml.Event

// Source is where the graph comes from.
type Source interface {
	// Graph reads the hardware. The graph is complete even if there are problems. On an
	// error the last good graph stays.
	Graph(ctx context.Context) (*nvtopo.Graph, []Problem, error)
	// Events delivers reasons to read before the interval is over, until ctx ends. It
	// is nil if the source has none.
	Events(ctx context.Context) <-chan Event
}

// rememberer is a source that notices missing GPUs by comparing with an earlier graph.
type rememberer interface{ Remember(g *nvtopo.Graph) }

// NVML returns the source that reads this machine's GPUs through the driver.
func NVML(lib nvml.Library, sysfsRoot string, opts nvml.Options) Source {
	return nvmlSource{nvml.New(lib, sysfsRoot, opts)}
}

type nvmlSource struct{ *nvml.Discoverer }

func (s nvmlSource) Events(ctx context.Context) <-chan Event { return s.WatchEvents(ctx) }

// Static returns a source that always has the same graph.
func Static(g *nvtopo.Graph) Source { return staticSource{g} }

type staticSource struct{ g *nvtopo.Graph }

func (s staticSource) Graph(context.Context) (*nvtopo.Graph, []Problem, error) { return s.g, nil, nil }
func (staticSource) Events(context.Context) <-chan Event                       { return nil }
