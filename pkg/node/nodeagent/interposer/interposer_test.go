// SPDX-License-Identifier: Apache-2.0

package interposer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
)

func TestRegistrationAndList(t *testing.T) {
	node := func(id int64) *pluginapi.TopologyInfo {
		return &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: id}}}
	}
	for name, tc := range map[string]struct {
		cfg         interposer.Config
		inner       func(*deviceplugin.Config)
		wantOptions *pluginapi.DevicePluginOptions
		wantDevices []*pluginapi.Device
	}{
		"the list is passed on untouched and we are asked for preferences": {
			wantOptions: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true},
			wantDevices: []*pluginapi.Device{{ID: "GPU-0", Health: "Healthy", Topology: node(0)}, {ID: "GPU-1", Health: "Healthy", Topology: node(1)}},
		},
		"NUMA nodes can be stripped": {
			cfg:         interposer.Config{StripNUMA: true},
			wantOptions: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true},
			wantDevices: []*pluginapi.Device{{ID: "GPU-0", Health: "Healthy"}, {ID: "GPU-1", Health: "Healthy"}},
		},
		"strict mode has kubelet ask before every start": {
			cfg:         interposer.Config{PreStart: true, StripNUMA: true},
			wantOptions: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true, PreStartRequired: true},
			wantDevices: []*pluginapi.Device{{ID: "GPU-0", Health: "Healthy"}, {ID: "GPU-1", Health: "Healthy"}},
		},
		"so does a plugin that wants it": {
			inner: func(c *deviceplugin.Config) {
				c.PreStart = func(context.Context, []string) error { return nil }
			},
			wantOptions: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true, PreStartRequired: true},
			wantDevices: []*pluginapi.Device{{ID: "GPU-0", Health: "Healthy", Topology: node(0)}, {ID: "GPU-1", Health: "Healthy", Topology: node(1)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestEnv(t)
			k := n.kubelet()
			i, _ := n.agent(nil, tc.cfg)
			n.plugin(2, tc.inner)
			c := n.wait(k, gpu, healthy(2))
			if diff := cmp.Diff(tc.wantDevices, c.Devices, protocmp.Transform()); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantOptions, c.Options, protocmp.Transform()); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			request := k.Request(gpu)
			if name := request.GetEndpoint(); !strings.HasPrefix(name, "nvtopo-nvidia.com_gpu~") {
				t.Errorf("registered at %q, want a name beside nvtopo-nvidia.com_gpu.sock", name)
			}
			request.Endpoint = ""
			wantReq := &pluginapi.RegisterRequest{Version: "v1beta1", ResourceName: gpu, Options: tc.wantOptions}
			if diff := cmp.Diff(wantReq, request, protocmp.Transform()); diff != "" {
				t.Errorf("registration (-want +got):\n%s", diff)
			}
			want := []interposer.ResourceStatus{{Resource: gpu, InnerConnected: true, Registered: true, Devices: 2, Healthy: 2}}
			if diff := cmp.Diff(want, i.Resources()); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]map[string]bool{{"GPU-0": true, "GPU-1": true}}, n.steering.told(gpu)); diff != "" {
				t.Errorf("what steering was told (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHealth: the plugin's health is passed on.
func TestHealth(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	n.agent(nil, interposer.Config{})
	p, _ := n.plugin(4, nil)
	n.wait(k, gpu, healthy(4))
	if err := p.SetHealth("GPU-2", false); err != nil {
		t.Fatal(err)
	}
	n.wait(k, gpu, healthy(3))
	lists := n.steering.told(gpu)
	want := map[string]bool{"GPU-0": true, "GPU-1": true, "GPU-2": false, "GPU-3": true}
	if diff := cmp.Diff(want, lists[len(lists)-1]); diff != "" {
		t.Errorf("what steering was told last (-want +got):\n%s", diff)
	}
	if _, count := k.Get(gpu); count != 1 {
		t.Errorf("%d registrations with kubelet, want 1", count)
	}
}

func TestPreferred(t *testing.T) {
	t.Parallel()
	available := []string{"GPU-0", "GPU-1", "GPU-2", "GPU-3"}
	type ask = func(context.Context, interposer.Question) ([]string, error)
	for name, tc := range map[string]struct {
		inner     func(ctx context.Context, available, must []string, size int) ([]string, error)
		preferred func(t *testing.T, ctx context.Context, q interposer.Question, inner ask) ([]string, error)
		must      []string
		size      int32
		want      []string
		wantCode  codes.Code
	}{
		"steering's answer is kubelet's answer, in its order": {
			preferred: func(t *testing.T, _ context.Context, q interposer.Question, inner ask) ([]string, error) {
				t.Helper()
				want := interposer.Question{Resource: gpu, Available: available, MustInclude: []string{"GPU-3"}, Size: 2}
				if diff := cmp.Diff(want, q); diff != "" {
					t.Errorf("question (-want +got):\n%s", diff)
				}
				if inner != nil {
					t.Error("steering got an inner preference of a plugin that has none")
				}
				return []string{"GPU-3", "GPU-1"}, nil
			},
			must: []string{"GPU-3"}, size: 2, want: []string{"GPU-3", "GPU-1"},
		},
		"the inner plugin can be asked a narrower question": {
			inner: deviceplugin.FirstN,
			preferred: func(_ *testing.T, ctx context.Context, q interposer.Question, inner ask) ([]string, error) {
				q.Available = []string{"GPU-2", "GPU-3"}
				return inner(ctx, q)
			},
			size: 1, want: []string{"GPU-2"},
		},
		"an inner plugin that does not answer in time leaves the choice to us": {
			inner: func(ctx context.Context, _, _ []string, _ int) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() },
			preferred: func(t *testing.T, ctx context.Context, q interposer.Question, inner ask) ([]string, error) {
				t.Helper()
				if _, err := inner(ctx, q); status.Code(errors.Unwrap(err)) != codes.DeadlineExceeded {
					t.Errorf("inner answered %v, want its deadline exceeded", err)
				}
				if ctx.Err() != nil {
					t.Error("our own deadline has passed as well")
				}
				return []string{"GPU-1"}, nil
			},
			size: 1, want: []string{"GPU-1"},
		},
		"an inner answer that kubelet would mend at random is an error": {
			inner: func(context.Context, []string, []string, int) ([]string, error) { return []string{"GPU-0"}, nil },
			preferred: func(t *testing.T, ctx context.Context, q interposer.Question, inner ask) ([]string, error) {
				t.Helper()
				if ids, err := inner(ctx, q); err == nil {
					t.Errorf("inner answered %q, want an error", ids)
				}
				return []string{"GPU-1", "GPU-2"}, nil
			},
			size: 2, want: []string{"GPU-1", "GPU-2"},
		},
		"steering refuses the pod": {
			preferred: func(*testing.T, context.Context, interposer.Question, ask) ([]string, error) {
				return nil, errors.New("GPU-1 is held by pod ns/other")
			},
			size: 1, wantCode: codes.FailedPrecondition,
		},
		"steering's own code is kept": {
			preferred: func(*testing.T, context.Context, interposer.Question, ask) ([]string, error) {
				return nil, status.Error(codes.ResourceExhausted, "busy")
			},
			size: 1, wantCode: codes.ResourceExhausted,
		},
		"too few ids from steering": {
			preferred: func(*testing.T, context.Context, interposer.Question, ask) ([]string, error) {
				return []string{"GPU-1"}, nil
			},
			size: 2, wantCode: codes.Internal,
		},
		"an id twice from steering": {
			preferred: func(*testing.T, context.Context, interposer.Question, ask) ([]string, error) {
				return []string{"GPU-1", "GPU-1"}, nil
			},
			size: 2, wantCode: codes.Internal,
		},
		"an unavailable id from steering": {
			preferred: func(*testing.T, context.Context, interposer.Question, ask) ([]string, error) {
				return []string{"GPU-7"}, nil
			},
			size: 1, wantCode: codes.Internal,
		},
		"without an id that must be included": {
			preferred: func(*testing.T, context.Context, interposer.Question, ask) ([]string, error) {
				return []string{"GPU-1"}, nil
			},
			must: []string{"GPU-0"}, size: 1, wantCode: codes.Internal,
		},
		"more than there are":                  {size: 5, wantCode: codes.InvalidArgument},
		"fewer than those that must be in":     {must: []string{"GPU-0", "GPU-1"}, size: 1, wantCode: codes.InvalidArgument},
		"must-include counts as available too": {must: []string{"GPU-8"}, size: 5, want: []string{"GPU-8", "GPU-0", "GPU-1", "GPU-2", "GPU-3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTestEnv(t)
			if tc.preferred != nil {
				n.steering.preferred = func(ctx context.Context, q interposer.Question, inner ask) ([]string, error) {
					return tc.preferred(t, ctx, q, inner)
				}
			}
			k := n.kubelet()
			n.agent(nil, interposer.Config{})
			n.plugin(4, func(c *deviceplugin.Config) { c.Preferred = tc.inner })
			c := n.wait(k, gpu, healthy(4))
			got, err := prefer(t.Context(), c, available, tc.must, tc.size)
			if status.Code(err) != tc.wantCode {
				t.Fatalf("error %v, want code %v", err, tc.wantCode)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAllocate: Allocate calls pass through untouched.
func TestAllocate(t *testing.T) {
	n := newTestEnv(t)
	k := n.kubelet()
	n.agent(nil, interposer.Config{})
	n.plugin(4, nil)
	c := n.wait(k, gpu, healthy(4))

	// An order nobody would choose; the container must see kubelet's.
	resp, err := allocate(t.Context(), c, "GPU-3", "GPU-0", "GPU-2")
	if err != nil {
		t.Fatal(err)
	}
	want := []*pluginapi.ContainerAllocateResponse{{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-3,GPU-0,GPU-2"}}}
	if diff := cmp.Diff(want, resp.GetContainerResponses(), protocmp.Transform()); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}

	// What steering refuses does not reach the plugin, what the plugin refuses is not reported as allocated.
	n.steering.mu.Lock()
	n.steering.allocate = func(_ context.Context, ids []string) error {
		if ids[0] == "GPU-1" {
			return errors.New("GPU-1 belongs to pod ns/other")
		}
		ids[0] = "changed" // a copy, with no effect on the plugin
		return nil
	}
	n.steering.mu.Unlock()
	if _, err := allocate(t.Context(), c, "GPU-1"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("refused allocation: %v, want FailedPrecondition", err)
	}
	if _, err := allocate(t.Context(), c, "GPU-9"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("unknown device: %v, want the plugin's InvalidArgument", err)
	}
	if _, err := allocate(t.Context(), c, "GPU-2"); err != nil {
		t.Error(err)
	}
	n.steering.mu.Lock()
	defer n.steering.mu.Unlock()
	if diff := cmp.Diff([][]string{{"GPU-3", "GPU-0", "GPU-2"}, {"GPU-2"}}, n.steering.allocated); diff != "" {
		t.Errorf("allocated (-want +got):\n%s", diff)
	}
}

func TestPreStart(t *testing.T) {
	n := newTestEnv(t)
	n.steering.preStart = func(ids []string) error {
		if ids[0] == "GPU-0" {
			return errors.New("not what the scheduler chose")
		}
		return nil
	}
	k := n.kubelet()
	n.agent(nil, interposer.Config{PreStart: true})
	asked := make(chan []string, 1)
	n.plugin(2, func(c *deviceplugin.Config) {
		c.PreStart = func(_ context.Context, ids []string) error { asked <- ids; return nil }
	})
	c := n.wait(k, gpu, healthy(2))
	start := func(id string) error {
		_, err := c.Client.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: []string{id}})
		return err
	}
	if err := start("GPU-0"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("starting with GPU-0: %v, want FailedPrecondition", err)
	}
	select {
	case ids := <-asked:
		t.Errorf("the plugin was asked about %q, which steering had refused", ids)
	default:
	}
	if err := start("GPU-1"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"GPU-1"}, <-asked); diff != "" {
		t.Errorf("what the plugin was asked (-want +got):\n%s", diff)
	}
}
