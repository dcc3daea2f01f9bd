// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// Problem is a property that a reading could not determine.
type Problem = nvml.Problem

// Event is a reason to read the source again.
type Event = nvml.Event

// Source supplies the node's link graph.
type Source interface {
	// Graph reads the hardware. The graph is complete even if there are problems. After an error the
	// exporter keeps the last good graph.
	Graph(ctx context.Context) (*nvtopo.Graph, []Problem, error)
	// Events delivers reasons to read before the interval is over, until ctx ends. It returns nil if the
	// source has no events.
	Events(ctx context.Context) <-chan Event
}

// rememberer is a source that detects missing GPUs by comparison with an earlier graph.
type rememberer interface{ Remember(g *nvtopo.Graph) }

// NVML returns a source that reads this machine's GPUs through the driver.
func NVML(lib nvml.Library, sysfsRoot string, opts nvml.Options) Source {
	return nvmlSource{nvml.New(lib, sysfsRoot, opts)}
}

type nvmlSource struct{ *nvml.Discoverer }

func (s nvmlSource) Events(ctx context.Context) <-chan Event { return s.WatchEvents(ctx) }

// Static returns a source that always returns g.
func Static(g *nvtopo.Graph) Source { return staticSource{g} }

type staticSource struct{ g *nvtopo.Graph }

func (s staticSource) Graph(context.Context) (*nvtopo.Graph, []Problem, error) { return s.g, nil, nil }
func (staticSource) Events(context.Context) <-chan Event                       { return nil }
