// SPDX-License-Identifier: Apache-2.0

package interposer_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/klog/v2/ktesting"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin/kubelettest"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
)

const gpu = "nvidia.com/gpu"

// patience is how long a test waits for what should take milliseconds.
const patience = 2 * time.Minute

// steering is a Steering whose every answer a test can replace.
type steering struct {
	mu        sync.Mutex
	preferred func(context.Context, interposer.Question, func(context.Context, interposer.Question) ([]string, error)) ([]string, error)
	allocate  func(ctx context.Context, ids []string) error
	preStart  func(ids []string) error
	allocated [][]string
	lists     map[string][]map[string]bool // resource -> lists in order
}

func (s *steering) Preferred(ctx context.Context, q interposer.Question,
	inner func(context.Context, interposer.Question) ([]string, error),
) ([]string, error) {
	s.mu.Lock()
	f := s.preferred
	s.mu.Unlock()
	if f == nil {
		return deviceplugin.FirstN(ctx, q.Available, q.MustInclude, q.Size)
	}
	return f(ctx, q, inner)
}

func (s *steering) Allocate(ctx context.Context, _ string, ids []string) error {
	s.mu.Lock()
	f := s.allocate
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, ids)
}

func (s *steering) Allocated(_ string, ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allocated = append(s.allocated, ids)
}

func (s *steering) PreStart(_ context.Context, _ string, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.preStart == nil {
		return nil
	}
	return s.preStart(ids)
}

func (s *steering) Devices(resource string, healthy map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		s.lists = map[string][]map[string]bool{}
	}
	s.lists[resource] = append(s.lists[resource], maps.Clone(healthy))
}

func (s *steering) told(resource string) []map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lists[resource])
}

// testEnv is one directory of sockets with a kubelet, an agent and plugins.
type testEnv struct {
	t        testing.TB
	dir      string
	steering *steering
	registry *prometheus.Registry
}

func newTestEnv(tb testing.TB) *testEnv {
	tb.Helper()
	d, err := os.MkdirTemp("", "ip") //nolint:usetesting // its paths are too long for sockets
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(d) })
	return &testEnv{t: tb, dir: d, steering: &steering{}}
}

func (e *testEnv) kubelet() *kubelettest.Kubelet {
	e.t.Helper()
	return e.kubeletRefusing(nil)
}

func (e *testEnv) kubeletRefusing(refuse error) *kubelettest.Kubelet {
	e.t.Helper()
	k, err := kubelettest.StartRefusing(e.dir, refuse)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(k.Stop)
	return k
}

// agent runs an interposer until the test ends or stop is called. Its answers have the time
// that a busy machine takes; budget_test.go is about how little they have.
func (e *testEnv) agent(clk clock.WithTicker, cfg interposer.Config) (i *interposer.Interposer, stop func()) {
	e.t.Helper()
	cfg = cfg.Patient()
	cfg.PluginDir = e.dir
	e.registry = prometheus.NewRegistry()
	cfg.Registerer = e.registry
	if clk == nil {
		clk = clock.RealClock{}
	}
	i, err := interposer.New(cfg, e.steering, clk)
	if err != nil {
		e.t.Fatal(err)
	}
	return i, e.background(i.Run)
}

// plugin runs an inner plugin with devices GPU-0 and on.
func (e *testEnv) plugin(devices int, change func(*deviceplugin.Config)) (p *deviceplugin.Plugin, stop func()) {
	e.t.Helper()
	plain, err := deviceplugin.Plain("GPU-", devices, 2)
	if err != nil {
		e.t.Fatal(err)
	}
	cfg := deviceplugin.Config{
		Resource: gpu, Devices: plain, PluginDir: e.dir, KubeletSocket: filepath.Join(e.dir, "nvtopo", "kubelet.sock"),
	}
	if change != nil {
		change(&cfg)
	}
	if p, err = deviceplugin.New(cfg, clock.RealClock{}); err != nil {
		e.t.Fatal(err)
	}
	return p, e.background(p.Run)
}

func (e *testEnv) background(run func(context.Context) error) (stop func()) {
	_, ctx := ktesting.NewTestContext(e.t)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("Run: %v", err)
		}
	})
	e.t.Cleanup(stop)
	return stop
}

func (e *testEnv) wait(k *kubelettest.Kubelet, resource string, ok func(kubelettest.Current) bool) kubelettest.Current {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	c, err := k.Wait(ctx, resource, ok)
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// healthy says that kubelet follows the plugin and has so many healthy devices.
func healthy(want int) func(kubelettest.Current) bool {
	return func(c kubelettest.Current) bool {
		count := 0
		for _, d := range c.Devices {
			if d.GetHealth() == pluginapi.Healthy {
				count++
			}
		}
		return c.Devices != nil && !c.Stopped && count == want
	}
}

func prefer(ctx context.Context, c kubelettest.Current, available, must []string, size int32) ([]string, error) {
	resp, err := c.Client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: size},
		},
	})
	if err != nil {
		return nil, err
	}
	return resp.GetContainerResponses()[0].GetDeviceIDs(), nil
}

func allocate(ctx context.Context, c kubelettest.Current, ids ...string) (*pluginapi.AllocateResponse, error) {
	return c.Client.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
}
