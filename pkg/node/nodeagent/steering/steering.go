// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
)

// cleanEvery is the period of removing entries of pods that are gone.
const cleanEvery = time.Minute

// Steering answers kubelet's requests. It is safe for concurrent use.
type Steering struct {
	cfg      Config
	pods     Pods
	kubelet  *kubelet.Patient
	graphs   Graphs
	clock    clock.WithTicker
	metrics  *metrics
	viewer   *viewer
	recorded *recordsByResource
	busy     atomic.Int32 // kubelet's calls in progress
	giving   atomic.Int32 // the part of busy that allocates devices
	// surveying has room for one token, held while kubelet is queried for all its pods.
	surveying chan struct{}
	notify    atomic.Pointer[func()]
	promises  promises
	written   chan struct{} // has room for one token: wakes Run to write changes

	mu      sync.Mutex
	shelves map[string]*shelf // resource -> shelf; guarded by mu
}

var _ interposer.Steering = (*Steering)(nil)

// New returns a Steering that can answer at once. Served devices are read from the state directory when a
// resource is first seen; Run writes them to it.
func New(cfg Config, pods Pods, k Kubelet, graphs Graphs, clk clock.WithTicker) (*Steering, error) {
	if cfg.Node == "" || cfg.CheckpointPath == "" {
		return nil, errors.New("steering: node and checkpoint path are required")
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("steering: %w", err)
	}
	if cfg.StateDir != "" {
		if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
			return nil, fmt.Errorf("steering: state directory: %w", err)
		}
	}
	s := &Steering{
		cfg: cfg, pods: pods, kubelet: kubelet.NewPatient(k, clk), graphs: graphs, clock: clk, metrics: m,
		recorded: newRecordsByResource(cfg.CheckpointPath, clk),
		written:  make(chan struct{}, 1), surveying: make(chan struct{}, 1),
		shelves: map[string]*shelf{},
	}
	s.viewer = &viewer{node: cfg.Node, ignored: func(reason string) { m.ignored.WithLabelValues(reason).Inc() }}
	return s, nil
}

// Run writes the served devices whenever they change, and removes entries of pods that are gone, until
// ctx ends. Without Run, Steering still answers, from memory and kubelet's own record.
func (s *Steering) Run(ctx context.Context) error {
	ticker := s.clock.NewTicker(cleanEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.save(klog.FromContext(ctx))
			return nil
		case <-s.written:
		case <-ticker.C():
			s.clean(ctx)
		}
		s.save(klog.FromContext(ctx))
	}
}

// OnAllocated sets a function that is called after each allocation. It must not block.
func (s *Steering) OnAllocated(f func()) { s.notify.Store(&f) }

// Busy reports whether kubelet is waiting for an answer.
func (s *Steering) Busy() bool { return s.busy.Load() > 0 }

// Devices records a list sent to kubelet, which explains later why a device is not on offer.
func (s *Steering) Devices(resource string, healthy map[string]bool) {
	sh := s.shelf(klog.Background(), resource)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.healthy = maps.Clone(healthy)
}

// shelf returns the shelf of a resource. The first call for a resource reads its file.
func (s *Steering) shelf(logger klog.Logger, resource string) *shelf {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.shelves[resource]
	if sh == nil {
		sh = newShelf(resource)
		s.load(logger, sh)
		s.shelves[resource] = sh
	}
	return sh
}

func (s *Steering) all() []*shelf {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*shelf, 0, len(s.shelves))
	for _, sh := range s.shelves {
		out = append(out, sh)
	}
	return out
}

func (s *Steering) clean(ctx context.Context) {
	pods := s.pods.Pods()
	views := s.viewer.of(pods)
	s.viewer.forget(pods)
	for _, sh := range s.all() {
		recorded := s.recorded.of(ctx, sh.resource)
		if recorded == nil {
			continue // it is unknown which pods still hold devices
		}
		sh.mu.Lock()
		sh.learn(recorded, views, s.clock.Now())
		sh.forget(recorded, views, s.clock.Now())
		sh.mu.Unlock()
	}
}

// enter registers a call of kubelet until leave is called.
func (s *Steering) enter() (leave func()) {
	s.busy.Add(1)
	return func() { s.busy.Add(-1) }
}

// give is enter for calls that allocate devices.
func (s *Steering) give() (leave func()) {
	s.giving.Add(1)
	out := s.enter()
	return func() {
		out()
		s.giving.Add(-1)
	}
}
