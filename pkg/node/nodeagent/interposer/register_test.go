// SPDX-License-Identifier: Apache-2.0

package interposer_test

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin/kubelettest"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
)

// register sends one registration to the agent.
func (e *testEnv) register(req *pluginapi.RegisterRequest, timeout time.Duration) error {
	e.t.Helper()
	socket := filepath.Join(e.dir, "nvtopo", "kubelet.sock")
	testkit.Soon(e.t, "the registry", func() bool { _, err := os.Lstat(socket); return err == nil })
	ctx, cancel := context.WithTimeout(e.t.Context(), timeout)
	defer cancel()
	conn, err := deviceplugin.Dial(socket)
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, req)
	return err
}

func TestMalformedRegistrations(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	i, _ := n.agent(nil, interposer.Config{})
	for name, tc := range map[string]struct {
		req      *pluginapi.RegisterRequest
		wantCode codes.Code
		want     string
	}{
		"nothing at all":           {req: &pluginapi.RegisterRequest{}, wantCode: codes.InvalidArgument, want: "API version"},
		"an API version to come":   {req: &pluginapi.RegisterRequest{Version: "v2", ResourceName: gpu, Endpoint: "x.sock"}, wantCode: codes.InvalidArgument, want: `"v2"`},
		"a resource without owner": {req: &pluginapi.RegisterRequest{Version: "v1beta1", ResourceName: "gpu", Endpoint: "x.sock"}, wantCode: codes.InvalidArgument, want: "domain/name"},
		"a path out of the directory": {
			req: &pluginapi.RegisterRequest{Version: "v1beta1", ResourceName: gpu, Endpoint: "../../x.sock"}, wantCode: codes.InvalidArgument, want: "outside",
		},
		"our own socket": {
			req: &pluginapi.RegisterRequest{Version: "v1beta1", ResourceName: gpu, Endpoint: "nvtopo-nvidia.com_gpu.sock"}, wantCode: codes.InvalidArgument, want: "not a plugin's",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := n.register(tc.req, patience)
			if status.Code(err) != tc.wantCode || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want code %v and %q", err, tc.wantCode, tc.want)
			}
		})
	}
	// An endpoint nobody serves: the caller's own deadline ends the wait here.
	err := n.register(&pluginapi.RegisterRequest{Version: "v1beta1", ResourceName: gpu, Endpoint: "x.sock"}, 200*time.Millisecond)
	if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Unavailable {
		t.Errorf("an endpoint nobody serves: %v", err)
	}
	if got := i.Resources(); len(got) != 0 {
		t.Errorf("resources %+v came of it, want none", got)
	}
	if _, count := k.Get(gpu); count != 0 {
		t.Errorf("%d registrations with kubelet came of it, want none", count)
	}
}

// oldPlugin is a plugin of before GetDevicePluginOptions.
type oldPlugin struct {
	pluginapi.UnimplementedDevicePluginServer
}

func (oldPlugin) ListAndWatch(_ *pluginapi.Empty, s pluginapi.DevicePlugin_ListAndWatchServer) error {
	if err := s.Send(&pluginapi.ListAndWatchResponse{Devices: []*pluginapi.Device{{ID: "GPU-0", Health: pluginapi.Healthy}}}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func serveAt(t *testing.T, path string, plugin pluginapi.DevicePluginServer) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Error(err)
		return func() {}
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, plugin)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

func TestUnusualPlugins(t *testing.T) {
	for name, tc := range map[string]struct {
		endpoint func(n *testEnv) string // what it says
		path     func(n *testEnv) string // where it serves
		late     bool                    // it serves after it has registered
	}{
		"options are told at registration only": {
			endpoint: func(*testEnv) string { return "old.sock" }, path: func(n *testEnv) string { return filepath.Join(n.dir, "old.sock") },
		},
		"the whole directory is moved": {
			endpoint: func(*testEnv) string { return "old.sock" }, path: func(n *testEnv) string { return filepath.Join(n.dir, "nvtopo", "old.sock") },
		},
		"an absolute path": {
			endpoint: func(n *testEnv) string { return filepath.Join(n.dir, "elsewhere", "old.sock") },
			path:     func(n *testEnv) string { return filepath.Join(n.dir, "elsewhere", "old.sock") },
		},
		"it registers before it serves": {
			endpoint: func(*testEnv) string { return "old.sock" }, path: func(n *testEnv) string { return filepath.Join(n.dir, "old.sock") },
			late: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestEnv(t)
			if err := os.MkdirAll(filepath.Join(n.dir, "elsewhere"), 0o750); err != nil {
				t.Fatal(err)
			}
			k := n.kubelet()
			n.agent(nil, interposer.Config{})
			req := &pluginapi.RegisterRequest{
				Version: "v1beta1", ResourceName: gpu, Endpoint: tc.endpoint(n), Options: &pluginapi.DevicePluginOptions{PreStartRequired: true},
			}
			var served sync.WaitGroup
			if tc.late {
				served.Go(func() { time.Sleep(100 * time.Millisecond); serveAt(t, tc.path(n), oldPlugin{}) })
			} else {
				testkit.Soon(t, "the registry", func() bool { _, err := os.Lstat(filepath.Join(n.dir, "nvtopo")); return err == nil })
				serveAt(t, tc.path(n), oldPlugin{})
			}
			if err := n.register(req, patience); err != nil {
				t.Fatal(err)
			}
			served.Wait()
			if c := n.wait(k, gpu, healthy(1)); !c.Options.GetPreStartRequired() {
				t.Errorf("options %v, want those of the registration kept", c.Options)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	n := newTestEnv(t)
	clk := steppedClock{now: &atomic.Int64{}}
	passes := func(d time.Duration) { clk.now.Add(int64(d)) }
	n.steering.preferred = func(ctx context.Context, q interposer.Question, inner func(context.Context, interposer.Question) ([]string, error)) ([]string, error) {
		passes(30 * time.Millisecond)
		return inner(ctx, q)
	}
	k := n.kubelet()
	n.agent(clk, interposer.Config{})
	n.plugin(2, func(c *deviceplugin.Config) {
		c.Preferred = func(ctx context.Context, available, must []string, size int) ([]string, error) {
			passes(200 * time.Millisecond)
			return deviceplugin.FirstN(ctx, available, must, size)
		}
	})
	c := n.wait(k, gpu, healthy(2))
	if _, err := prefer(t.Context(), c, []string{"GPU-0", "GPU-1"}, nil, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := allocate(t.Context(), c, "GPU-0"); err != nil {
		t.Fatal(err)
	}
	// Kubelet has its list before it has answered the registration.
	var got map[string]float64
	testkit.Soon(t, "the registration to be counted", func() bool {
		got = samples(t, n.registry)
		return got["nvtopo_agent_registrations_total kubelet ok"] > 0
	})
	for _, name := range []string{
		"nvtopo_agent_rpc_seconds GetPreferredAllocation own", "nvtopo_agent_rpc_seconds GetPreferredAllocation inner",
		"nvtopo_agent_rpc_seconds Allocate own", "nvtopo_agent_rpc_seconds Allocate inner",
		"nvtopo_agent_registrations_total inner ok", "nvtopo_agent_registrations_total kubelet ok",
	} {
		if got[name] != 1 {
			t.Errorf("%s: %v, want 1", name, got[name])
		}
	}
	own := got["nvtopo_agent_rpc_slowest_seconds GetPreferredAllocation own"]
	inner := got["nvtopo_agent_rpc_slowest_seconds GetPreferredAllocation inner"]
	if own != 0.03 || inner != 0.2 {
		t.Errorf("own %v s, inner %v s; want the 0.03 s and the 0.2 s apart", own, inner)
	}
}

// samples returns counts of histograms and values of the rest by name and labels' values.
func samples(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			name := strings.Join([]string{f.GetName(), labels["rpc"] + labels["side"], labels["part"] + labels["result"]}, " ")
			switch {
			case m.GetHistogram() != nil:
				out[name] = float64(m.GetHistogram().GetSampleCount())
			case m.GetGauge() != nil:
				out[name] = m.GetGauge().GetValue()
			default:
				out[name] = m.GetCounter().GetValue()
			}
		}
	}
	return out
}

// TestRandomRestarts kills everything in random order, asks meanwhile, and wants
// that all is well in the end and no list was ever short.
func TestRandomRestarts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := newTestEnv(t)
	k := n.kubelet()
	_, stopAgent := n.agent(nil, interposer.Config{})
	_, stopPlugin := n.plugin(8, nil)
	var current sync.Mutex // guards k
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asking sync.WaitGroup
	var allocated atomic.Int64
	asking.Go(func() {
		for ctx.Err() == nil {
			current.Lock()
			c, _ := k.Get(gpu)
			current.Unlock()
			if c.Client == nil || !healthy(8)(c) {
				time.Sleep(time.Millisecond)
				continue
			}
			ids, err := prefer(ctx, c, []string{"GPU-0", "GPU-1", "GPU-2"}, []string{"GPU-2"}, 2)
			if err == nil && (len(ids) != 2 || ids[0] != "GPU-2") {
				t.Errorf("preferred %q", ids)
			}
			if resp, err := allocate(ctx, c, "GPU-2", "GPU-0"); err == nil {
				allocated.Add(1)
				if got := resp.GetContainerResponses()[0].GetEnvs()["NVIDIA_VISIBLE_DEVICES"]; got != "GPU-2,GPU-0" {
					t.Errorf("the container sees %q", got)
				}
			}
		}
	})
	for round := 0; round < 30 || round < 90 && allocated.Load() == 0; round++ { // longer pauses on a slow machine
		time.Sleep(time.Duration((1+round/30)*rng.IntN(60)) * time.Millisecond)
		switch rng.IntN(4) {
		case 0:
			k.Stop()
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			next := n.kubelet()
			current.Lock()
			k = next
			current.Unlock()
		case 1:
			stopPlugin()
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			_, stopPlugin = n.plugin(8, nil)
		case 2:
			stopAgent()
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			_, stopAgent = n.agent(nil, interposer.Config{})
		case 3:
			k.Drop(gpu)
		}
	}
	n.wait(k, gpu, healthy(8))
	testkit.Soon(t, "something is allocated", func() bool { return allocated.Load() > 0 })
	cancel()
	asking.Wait()
	for _, list := range n.steering.told(gpu) {
		if len(list) != 8 || len(unhealthy(list)) > 0 {
			t.Errorf("a list of %v, want 8 healthy devices always", list)
		}
	}
	t.Logf("%d allocations in between", allocated.Load())
	if final, err := allocate(t.Context(), mustGet(n, k), "GPU-7"); err != nil {
		t.Errorf("allocating at the end: %v, %v", final, err)
	}
}

func mustGet(n *testEnv, k *kubelettest.Kubelet) kubelettest.Current {
	n.t.Helper()
	return n.wait(k, gpu, healthy(8))
}
