// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"k8s.io/klog/v2/ktesting"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin/kubelettest"
)

const gpu = "nvidia.com/gpu"

// patience is how long a test waits for what should take milliseconds.
const patience = 2 * time.Minute

// dir returns a directory with a path short enough for sockets.
func dir(t *testing.T) string {
	t.Helper()
	d, err := os.MkdirTemp("", "dp") //nolint:usetesting // its paths are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

func startKubelet(t *testing.T, dir string) *kubelettest.Kubelet {
	t.Helper()
	k, err := kubelettest.Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	return k
}

// run runs the plugin until the test ends or the returned function is called.
func run(t *testing.T, p *deviceplugin.Plugin) (stop func()) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func newPlugin(t *testing.T, cfg deviceplugin.Config) *deviceplugin.Plugin {
	t.Helper()
	return newPluginAt(t, clock.RealClock{}, cfg)
}

// newPluginAt is newPlugin with a clock.
func newPluginAt(t *testing.T, clk clock.WithTicker, cfg deviceplugin.Config) *deviceplugin.Plugin {
	t.Helper()
	if cfg.Resource == "" {
		cfg.Resource = gpu
	}
	if cfg.Devices == nil {
		cfg.Devices = []deviceplugin.Device{{ID: "GPU-0"}, {ID: "GPU-1", NUMANode: 1}, {ID: "GPU-2", NUMANode: deviceplugin.NoNUMA}}
	}
	p, err := deviceplugin.New(cfg, clk)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wait(t *testing.T, k *kubelettest.Kubelet, ok func(kubelettest.Current) bool) kubelettest.Current {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := k.Wait(ctx, gpu, ok)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func listed(c kubelettest.Current) bool { return c.Devices != nil && !c.Stopped }

// TestPluginRegistration: the plugin registers and lists its devices.
func TestPluginRegistration(t *testing.T) {
	d := dir(t)
	k := startKubelet(t, d)
	run(t, newPlugin(t, deviceplugin.Config{PluginDir: d}))

	c := wait(t, k, listed)
	node := func(id int64) *pluginapi.TopologyInfo {
		return &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: id}}}
	}
	want := []*pluginapi.Device{
		{ID: "GPU-0", Health: pluginapi.Healthy, Topology: node(0)},
		{ID: "GPU-1", Health: pluginapi.Healthy, Topology: node(1)},
		{ID: "GPU-2", Health: pluginapi.Healthy},
	}
	if diff := cmp.Diff(want, c.Devices, protocmp.Transform()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	wantReq := &pluginapi.RegisterRequest{Version: "v1beta1", ResourceName: gpu, Options: &pluginapi.DevicePluginOptions{}}
	request := k.Request(gpu)
	if name := request.GetEndpoint(); !regexp.MustCompile(`^nvidia\.com_gpu~[0-9a-z]{8}\.sock$`).MatchString(name) {
		t.Errorf("registered at %q, want a name of its own beside nvidia.com_gpu.sock", name)
	}
	request.Endpoint = ""
	if diff := cmp.Diff(wantReq, request, protocmp.Transform()); diff != "" {
		t.Errorf("registration (-want +got):\n%s", diff)
	}
}

func TestPluginAllocate(t *testing.T) {
	d := dir(t)
	k := startKubelet(t, d)
	p := newPlugin(t, deviceplugin.Config{
		PluginDir: d, Devices: []deviceplugin.Device{{ID: "b", Paths: []string{"/dev/b"}}, {ID: "a"}, {ID: "ill", Unhealthy: true}},
	})
	run(t, p)
	c := wait(t, k, listed)

	for name, tc := range map[string]struct {
		ids      []string
		want     *pluginapi.ContainerAllocateResponse
		wantCode codes.Code
	}{
		"the variable keeps kubelet's order": {
			ids: []string{"b", "a"},
			want: &pluginapi.ContainerAllocateResponse{
				Envs:    map[string]string{"NVIDIA_VISIBLE_DEVICES": "b,a"},
				Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/b", HostPath: "/dev/b", Permissions: "rw"}},
			},
		},
		"a device that does not exist is refused": {ids: []string{"a", "c"}, wantCode: codes.InvalidArgument},
		"an unhealthy device is refused":          {ids: []string{"ill"}, wantCode: codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := c.Client.Allocate(t.Context(), &pluginapi.AllocateRequest{
				ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: tc.ids}},
			})
			if status.Code(err) != tc.wantCode {
				t.Fatalf("error %v, want code %v", err, tc.wantCode)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff([]*pluginapi.ContainerAllocateResponse{tc.want}, resp.GetContainerResponses(), protocmp.Transform()); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPluginHooks(t *testing.T) {
	d := dir(t)
	k := startKubelet(t, d)
	run(t, newPlugin(t, deviceplugin.Config{
		PluginDir: d, Preferred: deviceplugin.FirstN,
		PreStart: func(_ context.Context, ids []string) error {
			if ids[0] == "GPU-1" {
				return errors.New("not ready")
			}
			return nil
		},
	}))
	c := wait(t, k, listed)
	if !c.Options.GetGetPreferredAllocationAvailable() || !c.Options.GetPreStartRequired() {
		t.Errorf("options %v, want both hooks", c.Options)
	}
	resp, err := c.Client.GetPreferredAllocation(t.Context(), &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: []string{"GPU-2", "GPU-1", "GPU-0"}, MustIncludeDeviceIDs: []string{"GPU-1"}, AllocationSize: 2},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"GPU-1", "GPU-0"}, resp.GetContainerResponses()[0].GetDeviceIDs()); diff != "" {
		t.Errorf("preferred (-want +got):\n%s", diff)
	}
	if _, err := c.Client.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: []string{"GPU-0"}}); err != nil {
		t.Errorf("starting with GPU-0: %v", err)
	}
	if _, err := c.Client.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: []string{"GPU-1"}}); err == nil {
		t.Error("starting with GPU-1 succeeded, want the hook's error")
	}
}

// TestPluginChanges: changes of health and devices are told to kubelet.
func TestPluginChanges(t *testing.T) {
	d := dir(t)
	k := startKubelet(t, d)
	p := newPlugin(t, deviceplugin.Config{PluginDir: d})
	run(t, p)
	wait(t, k, listed)

	health := func(id string) func(kubelettest.Current) bool {
		return func(c kubelettest.Current) bool {
			for _, dev := range c.Devices {
				if dev.GetID() == id {
					return dev.GetHealth() == pluginapi.Unhealthy
				}
			}
			return false
		}
	}
	if err := p.SetHealth("GPU-1", false); err != nil {
		t.Fatal(err)
	}
	wait(t, k, health("GPU-1"))
	if err := p.SetHealth("GPU-1", true); err != nil {
		t.Fatal(err)
	}
	wait(t, k, func(c kubelettest.Current) bool { return !health("GPU-1")(c) })
	if err := p.SetHealth("GPU-9", true); err == nil {
		t.Error("SetHealth of an unknown device succeeded")
	}
	if err := p.SetDevices([]deviceplugin.Device{{ID: "x"}, {ID: "x"}}); err == nil {
		t.Error("a device twice was accepted")
	}
	if err := p.SetDevices([]deviceplugin.Device{{ID: "x"}}); err != nil {
		t.Fatal(err)
	}
	wait(t, k, func(c kubelettest.Current) bool { return len(c.Devices) == 1 && c.Devices[0].GetID() == "x" })
	if _, n := k.Get(gpu); n != 1 {
		t.Errorf("%d registrations, want all of this on one", n)
	}
}

// TestPluginKubeletRestart: the plugin survives a restart of kubelet.
func TestPluginKubeletRestart(t *testing.T) {
	d := dir(t)
	k := startKubelet(t, d)
	p := newPlugin(t, deviceplugin.Config{PluginDir: d})
	stop := run(t, p)
	wait(t, k, listed)

	for range 3 { // killed, socket file left; then a new one wipes all sockets
		k.Stop()
		k = startKubelet(t, d)
		wait(t, k, listed)
	}
	k.Drop(gpu) // the connection alone breaks
	wait(t, k, func(c kubelettest.Current) bool { return c.Stopped })
	wait(t, k, listed)

	// Somebody removes the socket: the open connection and the registration stay.
	socket := filepath.Join(d, "nvidia.com_gpu.sock")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	_, before := k.Get(gpu)
	testkit.Soon(t, "the socket is back", func() bool { _, err := os.Lstat(socket); return err == nil })
	if _, after := k.Get(gpu); after != before {
		t.Errorf("%d registrations after the socket was removed, want the %d before", after, before)
	}
	stop()
	if left, _ := filepath.Glob(filepath.Join(d, "nvidia*")); left != nil {
		t.Errorf("files left behind: %v", left)
	}
}

// TestPluginRegistrationRate: registrations with kubelet are limited.
func TestPluginRegistrationRate(t *testing.T) {
	const step = 10 * time.Millisecond
	d := dir(t)
	k := startKubelet(t, d)
	clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	run(t, newPluginAt(t, clk, deviceplugin.Config{PluginDir: d}))
	for passed := time.Duration(0); passed < 1500*time.Millisecond; passed += step {
		testkit.Soon(t, "the plugin waits for something", clk.HasWaiters)
		k.Drop(gpu) // whatever it opens
		clk.Step(step)
	}
	_, n := k.Get(gpu)
	if n > 8 { // after 0.1, 0.2, 0.4, 0.8 s …
		t.Errorf("%d registrations in 1.5 s with a kubelet that drops each", n)
	}
	testkit.Soon(t, "a second registration", func() bool { k.Drop(gpu); clk.Step(step); _, n := k.Get(gpu); return n >= 2 })
	testkit.Soon(t, "a registration that lasts", func() bool { clk.Step(step); c, _ := k.Get(gpu); return listed(c) })
}

// TestPluginNotices: the plugin hears of kubelet and of its own socket. Time stands still, so that
// the plugin is told of kubelet and of its own socket, which kubelet wipes, and does not look again
// after a while.
func TestPluginNotices(t *testing.T) {
	d := dir(t)
	p := newPluginAt(t, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), deviceplugin.Config{PluginDir: d})
	run(t, p)
	testkit.Soon(t, "the socket", func() bool { _, err := os.Lstat(filepath.Join(d, "nvidia.com_gpu.sock")); return err == nil })
	wait(t, startKubelet(t, d), listed)
	testkit.Soon(t, "registered", p.Registered)
}

// TestOverlappingPlugins is a DaemonSet whose old pod lives on for a while.
func TestOverlappingPlugins(t *testing.T) {
	d := dir(t)
	k := startKubelet(t, d)
	ours, theirs := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	old := newPluginAt(t, theirs, deviceplugin.Config{PluginDir: d, Devices: []deviceplugin.Device{{ID: "old"}}})
	stopOld := run(t, old)
	wait(t, k, listed)
	run(t, newPluginAt(t, ours, deviceplugin.Config{PluginDir: d, Devices: []deviceplugin.Device{{ID: "new"}}}))
	isNew := func(c kubelettest.Current) bool { return listed(c) && c.Devices[0].GetID() == "new" }
	testkit.Soon(t, "the new one has registered", func() bool { ours.Step(10 * time.Millisecond); c, _ := k.Get(gpu); return isNew(c) })
	for range 100 { // long enough for a fight
		for _, clk := range []*clocktesting.FakeClock{ours, theirs} {
			testkit.Soon(t, "the plugin waits for something", clk.HasWaiters)
			clk.Step(100 * time.Millisecond)
		}
	}
	if c, n := k.Get(gpu); n != 2 || !isNew(c) {
		t.Errorf("%d registrations, devices %v; want each process to register once", n, c.Devices)
	}
	stopOld() // which drops the new one's registration, by kubelet's rule
	testkit.Soon(t, "the new one has registered again", func() bool {
		ours.Step(10 * time.Millisecond)
		c, n := k.Get(gpu)
		return n == 3 && isNew(c)
	})
}

// TestKubeletKeepsSockets: kubelet 1.37 refuses a registration on a socket that it takes for connected, and may
// refuse it for ever. A plugin that comes back before kubelet has noticed registers, each time.
func TestKubeletKeepsSockets(t *testing.T) {
	d := dir(t)
	k := startKubelet(t, d)
	k.KeepSockets()
	var stop func()
	for i := range 5 {
		id := strconv.Itoa(i)
		next := run(t, newPlugin(t, deviceplugin.Config{PluginDir: d, Devices: []deviceplugin.Device{{ID: id}}}))
		wait(t, k, func(c kubelettest.Current) bool { return listed(c) && c.Devices[0].GetID() == id })
		if stop != nil {
			stop()
		}
		stop = next
	}
	for range 5 { // the connection alone breaks
		k.Drop(gpu)
		wait(t, k, func(c kubelettest.Current) bool { return c.Stopped })
		wait(t, k, listed)
	}
	testkit.Soon(t, "the socket has its last name alone beside its own", func() bool {
		sockets, err := filepath.Glob(filepath.Join(d, "nvidia*"))
		return err == nil && len(sockets) == 2
	})
}

// TestPluginEarlyStart: the plugin may start before kubelet.
func TestPluginEarlyStart(t *testing.T) {
	d := dir(t)
	registry := filepath.Join(d, "sub", "kubelet.sock")
	p := newPlugin(t, deviceplugin.Config{PluginDir: d, KubeletSocket: registry})
	run(t, p)
	testkit.Soon(t, "the socket", func() bool { _, err := os.Lstat(filepath.Join(d, "nvidia.com_gpu.sock")); return err == nil })
	if p.Registered() {
		t.Error("registered without a kubelet")
	}
	// The registry's directory differs from the plugin's, as with the interposer;
	// the stand-in joins its own, so the plugin's socket is linked there.
	k := startKubelet(t, filepath.Join(d, "sub"))
	if err := os.Symlink(filepath.Join(d, "nvidia.com_gpu.sock"), filepath.Join(d, "sub", "nvidia.com_gpu.sock")); err != nil {
		t.Fatal(err)
	}
	wait(t, k, listed)
	testkit.Soon(t, "registered", p.Registered)
}

// TestPluginRegistrationRetry: the plugin retries a refused registration.
func TestPluginRegistrationRetry(t *testing.T) {
	d := dir(t)
	k := startKubelet(t, d)
	k.Refuse(status.Error(codes.Unavailable, "later"))
	clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	run(t, newPluginAt(t, clk, deviceplugin.Config{PluginDir: d}))
	for range 5 { // each registration that is refused had a name of its own
		testkit.Soon(t, "it waits after it was refused", clk.HasWaiters)
		clk.Step(4 * time.Second)
	}
	testkit.Soon(t, "it waits after it was refused", clk.HasWaiters)
	if names, err := filepath.Glob(filepath.Join(d, "nvidia.com_gpu~*")); err != nil || len(names) > 1 {
		t.Errorf("%q: %v, want one name at most", names, err)
	}
	k.Refuse(nil)
	testkit.Soon(t, "registered", func() bool { clk.Step(10 * time.Millisecond); _, n := k.Get(gpu); return n > 0 })
	wait(t, k, listed)
}

// TestNewErrors: New refuses invalid settings.
func TestNewErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg     deviceplugin.Config
		wantErr string
	}{
		"a resource without domain":       {cfg: deviceplugin.Config{Resource: "gpu", PluginDir: "/d"}, wantErr: "domain/name"},
		"a resource of Kubernetes itself": {cfg: deviceplugin.Config{Resource: "kubernetes.io/gpu", PluginDir: "/d"}, wantErr: "reserved"},
		"a relative directory":            {cfg: deviceplugin.Config{Resource: gpu, PluginDir: "d"}, wantErr: "not absolute"},
		"a name with a directory":         {cfg: deviceplugin.Config{Resource: gpu, PluginDir: "/d", Name: "../x"}, wantErr: "plain file name"},
		"a path no socket can have":       {cfg: deviceplugin.Config{Resource: gpu, PluginDir: "/" + strings.Repeat("d", 100)}, wantErr: "longer"},
		"a device without id":             {cfg: deviceplugin.Config{Resource: gpu, PluginDir: "/d", Devices: []deviceplugin.Device{{}}}, wantErr: "no id"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := deviceplugin.New(tc.cfg, clock.RealClock{})
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want one with %q", err, tc.wantErr)
			}
		})
	}
}

func TestSimulated(t *testing.T) {
	devices, err := deviceplugin.Simulated("dgx-a100", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 8 {
		t.Fatalf("%d devices, want 8", len(devices))
	}
	plain, err := deviceplugin.Plain("GPU-", 8, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range plain {
		if want := i / 4; d.NUMANode != want {
			t.Errorf("%s is on NUMA node %d, want %d", d.ID, d.NUMANode, want)
		}
	}
	if _, err := deviceplugin.Plain("x", 2, 3); err == nil {
		t.Error("2 devices on 3 NUMA nodes were accepted")
	}
}
