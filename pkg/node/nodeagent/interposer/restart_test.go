// SPDX-License-Identifier: Apache-2.0

package interposer_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin/kubelettest"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
)

// steppedClock is the real clock, but only the test has it go on. Its timers run.
type steppedClock struct {
	clock.RealClock

	now *atomic.Int64 // nanoseconds
}

func (c steppedClock) Now() time.Time                  { return time.Unix(0, c.now.Load()) }
func (c steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// splitClock is the real clock, except that timers of hold are the fake one's.
type splitClock struct {
	clock.RealClock

	hold time.Duration
	fake *clocktesting.FakeClock
}

func (c splitClock) NewTimer(d time.Duration) clock.Timer {
	if d == c.hold {
		return c.fake.NewTimer(d)
	}
	return c.RealClock.NewTimer(d)
}

func newSplitClock(hold time.Duration) splitClock {
	return splitClock{hold: hold, fake: clocktesting.NewFakeClock(time.Unix(0, 0))}
}

func TestKubeletRestarts(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	i, _ := n.agent(nil, interposer.Config{})
	n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
	for range 3 {
		k.Stop()
		testkit.Soon(t, "the loss of kubelet is noticed", func() bool { return !i.Resources()[0].Registered })
		k = n.kubelet() // wipes the sockets of the agent and of the plugin
		c := n.wait(k, gpu, healthy(4))
		if _, err := allocate(t.Context(), c, "GPU-1"); err != nil {
			t.Errorf("allocating after kubelet's restart: %v", err)
		}
	}
	for _, list := range n.steering.told(gpu) {
		for id, ok := range list {
			if !ok {
				t.Errorf("%s was reported unhealthy although its plugin was never away", id)
			}
		}
	}
	testkit.Soon(t, "both sockets are back", func() bool {
		_, ours := os.Lstat(filepath.Join(n.dir, "nvtopo-nvidia.com_gpu.sock"))
		_, theirs := os.Lstat(filepath.Join(n.dir, "nvidia.com_gpu.sock"))
		return ours == nil && theirs == nil
	})
}

// TestKubeletStreamDrop: the agent survives that kubelet drops the stream.
func TestKubeletStreamDrop(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	n.agent(nil, interposer.Config{})
	n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
	for range 3 {
		_, before := k.Get(gpu)
		k.Drop(gpu)
		testkit.Soon(t, "a new registration", func() bool { _, after := k.Get(gpu); return after > before })
		n.wait(k, gpu, healthy(4))
	}
}

func TestLateKubelet(t *testing.T) {
	n := newTestEnv(t)
	i, _ := n.agent(nil, interposer.Config{})
	n.plugin(4, nil)
	want := []interposer.ResourceStatus{{Resource: gpu, InnerConnected: true, Devices: 4, Healthy: 4}}
	testkit.Soon(t, "the plugin is connected", func() bool { return cmp.Equal(want, i.Resources()) })
	k := n.kubeletRefusing(status.Error(codes.Unavailable, "not yet"))
	testkit.Soon(t, "kubelet refuses", func() bool { return samples(t, n.registry)["nvtopo_agent_registrations_total kubelet error"] > 0 })
	k.Refuse(nil)
	n.wait(k, gpu, healthy(4))
}

func TestPluginRestartWithinHold(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	clk := newSplitClock(30 * time.Second)
	i, _ := n.agent(clk, interposer.Config{})
	_, stop := n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
	for range 3 {
		stop()
		testkit.Soon(t, "the devices are held", clk.fake.HasWaiters)
		if s := i.Resources()[0]; s.InnerConnected || !s.Registered || s.Healthy != 4 {
			t.Errorf("while the plugin is away: %+v, want 4 healthy devices, registered", s)
		}
		clk.fake.Step(29 * time.Second)
		_, stop = n.plugin(4, nil)
		testkit.Soon(t, "the plugin is back", func() bool { return i.Resources()[0].InnerConnected })
		testkit.Soon(t, "nothing is held any more", func() bool { return !clk.fake.HasWaiters() })
		clk.fake.Step(time.Minute)
	}
	c, count := k.Get(gpu)
	if count != 1 || !healthy(4)(c) {
		t.Errorf("%d registrations with kubelet, devices %v; want one, all healthy", count, c.Devices)
	}
	for _, list := range n.steering.told(gpu) {
		if len(list) != 4 || strings.Contains(strings.Join(unhealthy(list), ","), "GPU") {
			t.Errorf("steering was told %v, want four healthy devices always", list)
		}
	}
}

func unhealthy(list map[string]bool) (ids []string) {
	for id, ok := range list {
		if !ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestPluginRestartAfterHold(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	clk := newSplitClock(30 * time.Second)
	i, _ := n.agent(clk, interposer.Config{})
	_, stop := n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
	stop()
	testkit.Soon(t, "the devices are held", clk.fake.HasWaiters)
	clk.fake.Step(30 * time.Second)
	c := n.wait(k, gpu, healthy(0))
	if len(c.Devices) != 4 {
		t.Errorf("%d devices on the list, want all 4 as unhealthy", len(c.Devices))
	}
	want := []interposer.ResourceStatus{{Resource: gpu, Registered: true, Devices: 4}}
	if diff := cmp.Diff(want, i.Resources()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	lists := n.steering.told(gpu)
	if len(unhealthy(lists[len(lists)-1])) != 4 {
		t.Errorf("steering was told %v last, want all unhealthy", lists[len(lists)-1])
	}
	n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
	if _, count := k.Get(gpu); count != 1 {
		t.Errorf("%d registrations with kubelet, want the first to last", count)
	}
}

// TestAllocateDuringRestart: Allocate waits for the plugin.
func TestAllocateDuringRestart(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	i, _ := n.agent(nil, interposer.Config{}.Within(3*time.Second))
	_, stop := n.plugin(4, nil)
	c := n.wait(k, gpu, healthy(4))
	stop()
	testkit.Soon(t, "the plugin is gone", func() bool { return !i.Resources()[0].InnerConnected })

	if _, err := allocate(t.Context(), c, "GPU-0"); status.Code(err) != codes.Unavailable {
		t.Errorf("without the plugin: %v, want Unavailable", err)
	}
	if ids, err := prefer(t.Context(), c, []string{"GPU-0", "GPU-1"}, nil, 1); err != nil || ids[0] != "GPU-0" {
		t.Errorf("preferring without the plugin: %q, %v; want our own answer", ids, err)
	}
}

// TestAllocateAfterReturn: Allocate goes to the plugin that comes back.
func TestAllocateAfterReturn(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	i, _ := n.agent(nil, interposer.Config{})
	_, stop := n.plugin(4, nil)
	c := n.wait(k, gpu, healthy(4))
	stop()
	testkit.Soon(t, "the plugin is gone", func() bool { return !i.Resources()[0].InnerConnected })
	got := make(chan error, 1)
	go func() { _, err := allocate(t.Context(), c, "GPU-0"); got <- err }()
	n.plugin(4, nil)
	if err := <-got; err != nil {
		t.Errorf("the plugin came back meanwhile: %v", err)
	}
}

// TestAllocateReconnect: Allocate survives the connection. It breaks the plugin's connection in the
// middle of the call.
func TestAllocateReconnect(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	n.agent(nil, interposer.Config{})
	_, stop := n.plugin(4, nil)
	c := n.wait(k, gpu, healthy(4))
	n.steering.mu.Lock()
	n.steering.allocate = func(context.Context, []string) error {
		// Between steering's word and the plugin's: the plugin is replaced.
		stop()
		n.plugin(4, nil)
		return nil
	}
	n.steering.mu.Unlock()
	if _, err := allocate(t.Context(), c, "GPU-0"); err != nil {
		t.Error(err)
	}
}

// hangs is a plugin whose Allocate answers only when its connection is gone.
type hangs struct {
	oldPlugin

	called chan struct{}
}

func (h hangs) Allocate(ctx context.Context, _ *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	h.called <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestPluginDeathInAllocate: the agent survives that the plugin dies in Allocate.
func TestPluginDeathInAllocate(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	n.agent(nil, interposer.Config{})
	socket := filepath.Join(n.dir, "nvidia.com_gpu.sock")
	h := hangs{called: make(chan struct{}, 1)}
	stop := serveAt(t, socket, h)
	if err := n.register(&pluginapi.RegisterRequest{Version: "v1beta1", ResourceName: gpu, Endpoint: filepath.Base(socket)}, patience); err != nil {
		t.Fatal(err)
	}
	c := n.wait(k, gpu, healthy(1))
	got := make(chan error, 1)
	go func() { _, err := allocate(t.Context(), c, "GPU-0"); got <- err }()
	<-h.called
	stop()
	n.plugin(4, nil)
	if err := <-got; err != nil {
		t.Errorf("allocating while the plugin is replaced: %v", err)
	}
}

// TestPluginEndpointMove: the agent follows a plugin that moves to another endpoint.
func TestPluginEndpointMove(t *testing.T) {
	t.Parallel() // waits a few seconds
	n := newTestEnv(t)
	k := n.kubelet()
	i, _ := n.agent(nil, interposer.Config{})
	n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
	var asked atomic.Int32
	_, stop := n.plugin(2, func(c *deviceplugin.Config) {
		c.Name = "second"
		c.PreStart = func(context.Context, []string) error { asked.Add(1); return nil }
	})
	// Its options differ, so kubelet has to be told too.
	c := n.wait(k, gpu, func(c kubelettest.Current) bool { return healthy(2)(c) && c.Options.GetPreStartRequired() })
	if _, err := allocate(t.Context(), c, "GPU-3"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("allocating a device only the first has: %v, want the second's InvalidArgument", err)
	}
	if c.Devices == nil || i.Resources()[0].Devices != 2 {
		t.Errorf("status %+v, want the second's devices to stay", i.Resources()[0])
	}
	stop()
	// The first lives; the new registry socket that it is given after a while has it register.
	n.wait(k, gpu, healthy(4))
	testkit.Soon(t, "connected", func() bool { return i.Resources()[0].InnerConnected })
}

func TestAgentRestarts(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	_, stop := n.agent(nil, interposer.Config{})
	n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
	for range 3 {
		stop()
		n.wait(k, gpu, func(c kubelettest.Current) bool { return c.Stopped })
		// Time stands still for it: it is told of the plugin and of kubelet, and does not look again
		// after a while.
		_, stop = n.agent(clocktesting.NewFakeClock(time.Unix(0, 0)), interposer.Config{})
		n.wait(k, gpu, healthy(4))
	}
	stop()
	left, err := filepath.Glob(filepath.Join(n.dir, "nvtopo*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := filepath.Glob(filepath.Join(n.dir, "nvtopo-*"))
	if err != nil {
		t.Fatal(err)
	}
	if all := slices.Concat(left, ours); len(all) > 0 {
		t.Errorf("files left behind: %q", all)
	}
}

// TestKilledAgent: an agent starts over the sockets that a killed one left.
func TestKilledAgent(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	if err := os.MkdirAll(filepath.Join(n.dir, "nvtopo"), 0o750); err != nil {
		t.Fatal(err)
	}
	stale := []string{"nvtopo/kubelet.sock", "nvtopo-nvidia.com_gpu.sock", "nvtopo-nvidia.com_gpu.sock~", "nvtopo-old.com_gpu.sock"}
	for _, name := range stale {
		leave(t, filepath.Join(n.dir, name))
	}
	leave(t, filepath.Join(n.dir, "other.sock"))
	n.agent(nil, interposer.Config{})
	n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
	if _, err := os.Lstat(filepath.Join(n.dir, "nvtopo-old.com_gpu.sock")); err == nil {
		t.Error("the stale socket of a resource that is no more was left")
	}
	if _, err := os.Lstat(filepath.Join(n.dir, "other.sock")); err != nil {
		t.Errorf("somebody else's socket was touched: %v", err)
	}
}

// leave leaves a socket as a killed process does.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSeveralResources(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	i, _ := n.agent(nil, interposer.Config{})
	resources := []string{"nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "rdma.example.com/hca"}
	var stops []func()
	for j, r := range resources {
		_, stop := n.plugin(j+2, func(c *deviceplugin.Config) { c.Resource = r })
		stops = append(stops, stop)
	}
	for j, r := range resources {
		n.wait(k, r, healthy(j+2))
	}
	stops[1]()
	want := []interposer.ResourceStatus{
		{Resource: resources[0], InnerConnected: true, Registered: true, Devices: 2, Healthy: 2},
		{Resource: resources[1], Registered: true, Devices: 3, Healthy: 3},
		{Resource: resources[2], InnerConnected: true, Registered: true, Devices: 4, Healthy: 4},
	}
	testkit.Soon(t, "one plugin is gone", func() bool { return !i.Resources()[1].InnerConnected })
	if diff := cmp.Diff(want, i.Resources()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	k.Stop()
	k = n.kubelet()
	for j, r := range resources {
		n.wait(k, r, healthy(j+2)) // those that are held as well
	}
}

// TestRegistryRestart: the registry is served again after its socket is gone.
func TestRegistryRestart(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	n.agent(nil, interposer.Config{})
	testkit.Soon(t, "the registry", func() bool { _, err := os.Lstat(filepath.Join(n.dir, "nvtopo", "kubelet.sock")); return err == nil })
	if err := os.Remove(filepath.Join(n.dir, "nvtopo", "kubelet.sock")); err != nil {
		t.Fatal(err)
	}
	testkit.Soon(t, "the registry again", func() bool { _, err := os.Lstat(filepath.Join(n.dir, "nvtopo", "kubelet.sock")); return err == nil })
	if err := os.Rename(filepath.Join(n.dir, "nvtopo"), filepath.Join(n.dir, "away")); err != nil {
		t.Fatal(err)
	}
	n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
}

// TestGoroutineLeaks: no goroutine is left running. It counts goroutines over lives of an agent
// with everything it can have open.
func TestGoroutineLeaks(t *testing.T) {
	n := newTestEnv(t)
	life := func() {
		k := n.kubelet()
		_, stopAgent := n.agent(nil, interposer.Config{})
		_, stopPlugin := n.plugin(4, func(c *deviceplugin.Config) { c.Preferred = deviceplugin.FirstN })
		_, stopOther := n.plugin(2, func(c *deviceplugin.Config) { c.Resource = "example.com/nic" })
		c := n.wait(k, gpu, healthy(4))
		n.wait(k, "example.com/nic", healthy(2))
		if _, err := allocate(t.Context(), c, "GPU-0"); err != nil {
			t.Error(err)
		}
		stopOther() // this one is being held when the agent ends
		stopAgent()
		stopPlugin()
		k.Stop()
	}
	life() // what the first life starts for good, such as klog's flusher
	before := runtime.NumGoroutine()
	for range 5 {
		life()
	}
	testkit.Soon(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}
