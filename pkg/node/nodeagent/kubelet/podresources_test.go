// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"
)

// server answers every Get with what get says.
type server struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	get         func(*podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error)
	list        func() (*podresourcesv1.ListPodResourcesResponse, error)
	allocatable *podresourcesv1.AllocatableResourcesResponse
}

func (s *server) Get(_ context.Context, r *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	return s.get(r)
}

func (s *server) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	return s.list()
}

func (s *server) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	return s.allocatable, nil
}

// serve runs a server on a socket and returns a client of it. A nil server has no Get.
func serve(t *testing.T, s podresourcesv1.PodResourcesListerServer) *PodResources {
	t.Helper()
	dir, err := os.MkdirTemp("", "pr") //nolint:usetesting // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "k.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	if s != nil {
		podresourcesv1.RegisterPodResourcesListerServer(g, s)
	}
	go g.Serve(l)
	t.Cleanup(g.Stop)
	c, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestGet: Get tells what containers hold.
func TestGet(t *testing.T) {
	c := serve(t, &server{get: func(r *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
		if r.PodNamespace != "team" || r.PodName != "train-0" {
			return nil, fmt.Errorf("asked for %s/%s", r.PodNamespace, r.PodName)
		}
		devices := func(resource string, ids ...string) *podresourcesv1.ContainerDevices {
			return &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: ids}
		}
		return &podresourcesv1.GetPodResourcesResponse{PodResources: &podresourcesv1.PodResources{Containers: []*podresourcesv1.ContainerResources{
			{Name: "main", Devices: []*podresourcesv1.ContainerDevices{
				devices("nvidia.com/gpu", "GPU-3"), devices("rdma/hca", "hca"), devices("nvidia.com/gpu", "GPU-0", "GPU-3"),
			}},
			{Name: "log"},
		}}}, nil
	}})
	got, err := c.Get(t.Context(), "team", "train-0")
	if err != nil {
		t.Fatal(err)
	}
	want := Devices{"main": {"nvidia.com/gpu": {"GPU-0", "GPU-3"}, "rdma/hca": {"hca"}}, "log": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestActivePods(t *testing.T) {
	pods, fails := []*podresourcesv1.PodResources{{Namespace: "a", Name: "p"}, {Namespace: "b", Name: "p"}}, error(nil)
	c := serve(t, &server{list: func() (*podresourcesv1.ListPodResourcesResponse, error) {
		return &podresourcesv1.ListPodResourcesResponse{PodResources: pods}, fails
	}})
	got, err := c.ActivePods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[types.NamespacedName]bool{{Namespace: "a", Name: "p"}: true, {Namespace: "b", Name: "p"}: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	fails = status.Error(codes.ResourceExhausted, "rejected by rate limit")
	if _, err := c.ActivePods(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("error %v, want %v", err, ErrBusy)
	}
}

// TestGetErrors: Get classifies errors.
func TestGetErrors(t *testing.T) {
	all := []error{ErrUnknownPod, ErrBusy, ErrUnsupported}
	cases := map[string]struct {
		err  error
		want error // nil: none of the three
	}{
		"kubelet 1.35 does not know the pod": {errors.New("pod p in namespace n not found"), ErrUnknownPod},
		"a kubelet that uses codes":          {status.Error(codes.NotFound, "no such pod"), ErrUnknownPod},
		"the shared rate limit is used up":   {status.Error(codes.ResourceExhausted, "rejected by rate limit"), ErrBusy},
		"the feature gate is off":            {errors.New("PodResources API Get method disabled"), ErrUnsupported},
		"a kubelet before 1.27":              {status.Error(codes.Unimplemented, "unknown method Get"), ErrUnsupported},
		"an error of the device manager":     {errors.New("checkpoint is corrupted"), nil},
		"another thing that is not found":    {errors.New("container c of pod p not known"), nil},
		"kubelet is not there":               {status.Error(codes.Unavailable, "connection refused"), nil},
		"no time left":                       {status.Error(codes.DeadlineExceeded, "context deadline exceeded"), nil},
		"an answer larger than the client takes": {
			status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 4)"), nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := serve(t, &server{get: func(*podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
				return nil, tc.err
			}})
			_, err := c.Get(t.Context(), "n", "p")
			if err == nil {
				t.Fatal("no error")
			}
			for _, class := range all {
				if got, want := errors.Is(err, class), errors.Is(tc.want, class); got != want {
					t.Errorf("error %v: is %q: %v, want %v", err, class, got, want)
				}
			}
			if code := status.Code(errors.Unwrap(err)); tc.want == nil && code != status.Code(tc.err) {
				t.Errorf("code %v is lost: %v", status.Code(tc.err), err)
			}
		})
	}
	t.Run("a server without the service", func(t *testing.T) {
		if _, err := serve(t, nil).Get(t.Context(), "n", "p"); !errors.Is(err, ErrUnsupported) {
			t.Errorf("got %v, want ErrUnsupported", err)
		}
	})
	t.Run("no socket at all", func(t *testing.T) {
		c, err := Dial(filepath.Join(t.TempDir(), "none.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // which who waited for a socket would use up
		defer cancel()
		if _, err := c.Get(ctx, "n", "p"); status.Code(errors.Unwrap(err)) != codes.Unavailable || ctx.Err() != nil {
			t.Errorf("got %v, want Unavailable at once", err)
		}
	})
}

func TestAllocatable(t *testing.T) {
	at := func(ids ...int64) *podresourcesv1.TopologyInfo {
		ti := &podresourcesv1.TopologyInfo{}
		for _, id := range ids {
			ti.Nodes = append(ti.Nodes, &podresourcesv1.NUMANode{ID: id})
		}
		return ti
	}
	c := serve(t, &server{allocatable: &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{
		{ResourceName: "gpu", DeviceIds: []string{"b"}, Topology: at(1)},
		{ResourceName: "gpu", DeviceIds: []string{"a", "c"}, Topology: at(1, 0)},
		{ResourceName: "nic", DeviceIds: []string{"n"}},
	}}})
	got, err := c.Allocatable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]Device{
		"gpu": {{ID: "a", NUMANodes: []int{0, 1}}, {ID: "b", NUMANodes: []int{1}}, {ID: "c", NUMANodes: []int{0, 1}}},
		"nic": {{ID: "n"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

type getFunc func(ctx context.Context) (Devices, error)

func (f getFunc) Get(ctx context.Context, _, _ string) (Devices, error) { return f(ctx) }

func (f getFunc) ActivePods(ctx context.Context) (map[types.NamespacedName]bool, error) {
	_, err := f(ctx)
	return map[types.NamespacedName]bool{}, err
}

func TestPatient(t *testing.T) {
	cases := map[string]struct {
		busy    int   // answers of ErrBusy first
		then    error // the one after
		limit   time.Duration
		want    error
		calls   int
		elapsed time.Duration
	}{
		"a free kubelet is asked once":               {then: nil, limit: time.Second, calls: 1},
		"a busy one is asked again after 10 ms":      {busy: 3, limit: time.Second, calls: 4, elapsed: 30 * time.Millisecond},
		"not knowing the pod is an answer":           {then: ErrUnknownPod, limit: time.Second, want: ErrUnknownPod, calls: 1},
		"an unknown pod after a while is an answer":  {busy: 2, then: ErrUnknownPod, limit: time.Second, want: ErrUnknownPod, calls: 3, elapsed: 20 * time.Millisecond},
		"it ends with the caller's time, still busy": {busy: 1000, limit: 95 * time.Millisecond, want: ErrBusy, calls: 10, elapsed: 95 * time.Millisecond},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				p := NewPatient(getFunc(func(context.Context) (Devices, error) {
					calls++
					if calls <= tc.busy {
						return nil, fmt.Errorf("pod p: %w", ErrBusy)
					}
					return Devices{}, tc.then
				}), clock.RealClock{})
				ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
				defer cancel()
				start := time.Now()
				_, err := p.Get(ctx, "n", "p")
				if !errors.Is(err, tc.want) || calls != tc.calls || time.Since(start) != tc.elapsed {
					t.Errorf("error %v after %d calls and %v; want %v after %d and %v", err, calls, time.Since(start), tc.want, tc.calls, tc.elapsed)
				}
				if errors.Is(tc.want, ErrBusy) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v does not tell that time ran out", err)
				}
			})
		})
	}
}

// TestPatientBusyKubelet: a patient client waits while kubelet has its request. A kubelet that is
// busy is not asked for all pods late in a question, and one that has got the request is waited
// for.
func TestPatientBusyKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 300 * time.Millisecond
		start, last := time.Now(), time.Duration(0)
		ctx, cancel := context.WithTimeout(t.Context(), 750*time.Millisecond)
		defer cancel()
		_, err := NewPatient(getFunc(func(context.Context) (Devices, error) {
			last = time.Since(start)
			return nil, ErrBusy
		}), clock.RealClock{}).ActivePods(ctx, patience)
		if !errors.Is(err, ErrBusy) || last > patience {
			t.Errorf("error %v, asked last after %v; want %v and no question after %v", err, last, ErrBusy, patience)
		}
		_, err = NewPatient(getFunc(func(ctx context.Context) (Devices, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(400 * time.Millisecond):
				return nil, nil
			}
		}), clock.RealClock{}).ActivePods(t.Context(), patience)
		if err != nil {
			t.Errorf("a request that kubelet works on is given up: %v", err)
		}
	})
}
