// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

// TestKubeletRestart checks that kubelet records devices and keeps them through a restart.
func TestKubeletRestart(t *testing.T) {
	start := func(t *testing.T) node {
		t.Helper()
		return startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
	}
	t.Run("the checkpoint holds every container, init containers too, by the pod's UID", func(t *testing.T) {
		n := start(t)
		p := devicemanager.WithInit(app(0, 2), devicemanager.Container("init", gpu, 2))
		n.mustAdmit(t, p)
		diff(t, "checkpoint", []devicemanager.Entry{
			{PodUID: p.UID, Container: "app", Resource: gpu, IDs: []string{"G0", "G1"}},
			{PodUID: p.UID, Container: "init", Resource: gpu, IDs: []string{"G0", "G1"}},
		}, n.Checkpoint(t))
	})
	t.Run("it is written container by container, after Allocate has answered", func(t *testing.T) {
		var atAllocate []int
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest, Allocate: func([]string) error {
			data, err := os.ReadFile(devicemanager.CheckpointFile)
			atAllocate = append(atAllocate, strings.Count(string(data), `"ContainerName"`))
			return err
		}})
		n.mustAdmit(t, devicemanager.Pod("two", 0, devicemanager.Container("a", gpu, 1), devicemanager.Container("b", gpu, 1)))
		diff(t, "entries at each Allocate", []int{0, 1}, atAllocate)
	})
	t.Run("a container that starts again gets its old environment and the plugin is not asked", func(t *testing.T) {
		n := start(t)
		p := app(0, 2)
		n.mustAdmit(t, p)
		n.plugin.Calls()
		for range 2 {
			env, err := n.StartContainer(t.Context(), p, "app")
			if err != nil {
				t.Fatal(err)
			}
			diff(t, "environment", map[string]string{devicemanager.VisibleEnv: "G0,G1"}, env)
		}
		diff(t, "calls", []string{}, rpcs(n.plugin.Calls()))
	})
	t.Run("PreStartContainer is asked at every start and its error keeps the container down", func(t *testing.T) {
		fail := errors.New("not the devices of the annotation")
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest, PreStart: func([]string) error { return fail }})
		p := app(0, 1)
		n.mustAdmit(t, p)
		if _, err := n.StartContainer(t.Context(), p, "app"); err == nil || !strings.Contains(err.Error(), fail.Error()) {
			t.Errorf("error %v, want the plugin's", err)
		}
		fail = nil
		if _, err := n.StartContainer(t.Context(), p, "app"); err != nil {
			t.Errorf("second start: %v", err)
		}
	})
	t.Run("after a restart of kubelet running pods keep their devices and nobody is asked", func(t *testing.T) {
		n := start(t)
		p := app(0, 2)
		n.mustAdmit(t, p)
		n.plugin.Calls()
		n.restart(t, devicemanager.Restart{})
		diff(t, "calls", []string{}, rpcs(n.plugin.Calls()))
		n.WaitAllocatable(t, gpu, 8)
		diff(t, "record", []string{"G0", "G1"}, n.Recorded(t, p.UID, "app"))
		q := app(1, 6)
		n.mustAdmit(t, q)
		diff(t, "record of a new pod", []string{"G2", "G3", "G4", "G5", "G6", "G7"}, n.Recorded(t, q.UID, "app"))
	})
	t.Run("but one whose init container had devices is failed unless its plugin registers before it is admitted again", func(t *testing.T) {
		// https://github.com/kubernetes/kubernetes/issues/138446: an init container
		// that has ended does not count as running.
		n := start(t)
		for i, early := range []bool{true, false} {
			p := devicemanager.WithInit(app(i, 2), devicemanager.Container("init", gpu, 2))
			n.mustAdmit(t, p)
			refused := 0
			how := devicemanager.Restart{Refused: func(*v1.Pod, *devicemanager.Refusal) { refused++ }}
			if early {
				how.Registering = func() { n.WaitAllocatable(t, gpu, 8) }
			} else {
				n.plugin.Stop()
			}
			n.restart(t, how)
			want := 2 // both pods of this test
			if early {
				want = 0
			}
			diff(t, "refused", want, refused)
		}
	})
	t.Run("after a reboot pods that come before their plugin are refused", func(t *testing.T) {
		n := start(t)
		p := app(0, 2)
		n.mustAdmit(t, p)
		n.plugin.Stop()
		var refused []string
		n.restart(t, devicemanager.Restart{Reboot: true, Refused: func(_ *v1.Pod, r *devicemanager.Refusal) { refused = append(refused, r.Reason) }})
		diff(t, "refusals", []string{"UnexpectedAdmissionError"}, refused)
	})
	t.Run("after a reboot pods that come after their plugin have their devices without a question", func(t *testing.T) {
		n := start(t)
		p := app(0, 2)
		n.mustAdmit(t, p)
		n.plugin.Calls()
		n.restart(t, devicemanager.Restart{Reboot: true, Registering: func() { n.WaitAllocatable(t, gpu, 8) }})
		diff(t, "calls", []string{}, rpcs(n.plugin.Calls()))
		diff(t, "record", []string{"G0", "G1"}, n.Recorded(t, p.UID, "app"))
	})
	t.Run("with the checkpoint lost kubelet gives running pods' devices away, and asks about nothing for them", func(t *testing.T) {
		n := start(t)
		p := app(0, 2)
		n.mustAdmit(t, p)
		n.plugin.Calls()
		n.restart(t, devicemanager.Restart{LoseCheckpoint: true})
		n.WaitAllocatable(t, gpu, 8)
		diff(t, "calls", []string{}, rpcs(n.plugin.Calls()))
		q := app(1, 2)
		n.mustAdmit(t, q)
		diff(t, "record of a new pod", []string{"G0", "G1"}, n.Recorded(t, q.UID, "app"))
		if _, err := n.StartContainer(t.Context(), p, "app"); err != nil {
			t.Fatal(err)
		}
		diff(t, "calls when the old container starts again", []string{"GetPreferredAllocation", "Allocate", "GetPreferredAllocation", "Allocate"},
			rpcs(n.plugin.Calls()))
		diff(t, "record of the old pod, other devices than it ran with", []string{"G2", "G3"}, n.Recorded(t, p.UID, "app"))
	})
	t.Run("the start of kubelet wipes sockets but no files, no directories and no sockets in directories", func(t *testing.T) {
		n := start(t)
		inner := filepath.Join(devicemanager.PluginDir, "nvtopo")
		if err := os.Mkdir(inner, 0o750); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(devicemanager.PluginDir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		top, sub := filepath.Join(devicemanager.PluginDir, "top.sock"), filepath.Join(inner, "sub.sock")
		for _, path := range []string{top, sub} {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
		}
		n.restart(t, devicemanager.Restart{})
		for path, want := range map[string]bool{inner: true, file: true, sub: true, top: false} {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) == want {
				t.Errorf("%s: %v, want it there: %v", path, err, want)
			}
		}
	})
	t.Run("when the plugin is gone nothing is allocatable, capacity stays and pods are refused", func(t *testing.T) {
		n := start(t)
		n.mustAdmit(t, app(0, 1))
		n.plugin.Stop()
		n.WaitAllocatable(t, gpu, 0)
		capacity, _ := n.Capacity(gpu)
		diff(t, "capacity", int64(8), capacity)
		if n.Admit(app(1, 1)) == nil {
			t.Error("a pod was admitted without a plugin")
		}
	})
	t.Run("the node offers no more allocatable devices for being given back: it counts healthy ones", func(t *testing.T) {
		n := start(t)
		n.mustAdmit(t, app(0, 3))
		_, allocatable := n.Capacity(gpu)
		diff(t, "allocatable", int64(8), allocatable)
	})
}

func (n node) restart(t *testing.T, how devicemanager.Restart) {
	t.Helper()
	if err := n.Restart(how); err != nil {
		t.Fatal(err)
	}
}

func dialPodResources(t *testing.T) podresourcesapi.PodResourcesListerClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+devicemanager.PodResourcesSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return podresourcesapi.NewPodResourcesListerClient(conn)
}

// held returns the sorted ids that PodResources shows for a pod, over all containers.
func held(ctx context.Context, c podresourcesapi.PodResourcesListerClient, name string) ([]string, error) {
	r, err := c.Get(ctx, &podresourcesapi.GetPodResourcesRequest{PodNamespace: "default", PodName: name})
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, c := range r.PodResources.Containers {
		for _, d := range c.Devices {
			ids = append(ids, d.DeviceIds...)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// TestPodResources checks which devices the PodResources API shows for each pod, also inside an RPC.
func TestPodResources(t *testing.T) {
	t.Run("inside an RPC the asking pod has no devices, an earlier one has its own, a later one is unknown", func(t *testing.T) {
		var ask func()
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{
			Preferred: func(available, must []string, size int) ([]string, error) {
				ask()
				return lowest(available, must, size)
			},
			Allocate: func([]string) error { ask(); return nil },
		})
		client := dialPodResources(t)
		ask = func() {}
		n.mustAdmit(t, app(0, 2))
		asked := 0
		ask = func() {
			asked++
			first, err := held(t.Context(), client, "pod-0")
			diff(t, "the earlier pod", []string{"G0", "G1"}, first)
			second, err2 := held(t.Context(), client, "pod-1")
			diff(t, "the asking pod", []string{}, second)
			if err != nil || err2 != nil {
				t.Errorf("errors %v and %v", err, err2)
			}
			_, err = held(t.Context(), client, "pod-2")
			if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "not found") {
				t.Errorf("the later pod: %v, want code Unknown and text not found", err)
			}
		}
		n.mustAdmit(t, app(1, 2))
		diff(t, "questions", 2, asked)
	})
	t.Run("a second container's question sees the first container's devices", func(t *testing.T) {
		var seen [][]string
		var client podresourcesapi.PodResourcesListerClient
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{
			Preferred: func(available, must []string, size int) ([]string, error) {
				ids, err := held(t.Context(), client, "two")
				seen = append(seen, ids)
				if err != nil {
					return nil, err
				}
				return lowest(available, must, size)
			},
		})
		client = dialPodResources(t)
		n.mustAdmit(t, devicemanager.Pod("two", 0, devicemanager.Container("a", gpu, 1), devicemanager.Container("b", gpu, 1)))
		diff(t, "devices seen", [][]string{{}, {"G0"}}, seen)
	})
	t.Run("a refused pod and an ended one are unknown, a deleted one that still runs is not", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		client := dialPodResources(t)
		refused, ended, deleted := app(0, 9), app(1, 1), app(2, 1)
		if n.Admit(refused) == nil {
			t.Fatal("9 of 8 devices were given")
		}
		n.mustAdmit(t, ended, deleted)
		n.Terminate(ended)
		copied := deleted.DeepCopy()
		copied.DeletionTimestamp = &copied.CreationTimestamp
		n.Update(copied)
		for name, want := range map[string]bool{"pod-0": false, "pod-1": false, "pod-2": true} {
			if _, err := held(t.Context(), client, name); (err == nil) != want {
				t.Errorf("%s: error %v, want known: %v", name, err, want)
			}
		}
	})
	t.Run("init containers are not shown, sidecars are", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		n.mustAdmit(t, devicemanager.WithInit(app(0, 1), devicemanager.Sidecar("sidecar", gpu, 1), devicemanager.Container("init", gpu, 3)))
		r, err := dialPodResources(t).Get(t.Context(), &podresourcesapi.GetPodResourcesRequest{PodNamespace: "default", PodName: "pod-0"})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range r.PodResources.Containers {
			names = append(names, c.Name)
		}
		diff(t, "containers", []string{"sidecar", "app"}, names)
	})
	t.Run("a pod of the same name that replaced another is what Get shows, and it has no UID to tell", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		client := dialPodResources(t)
		old, again := app(0, 2), app(0, 1)
		again.UID = "another"
		n.mustAdmit(t, old)
		n.mustAdmit(t, again)
		ids, err := held(t.Context(), client, "pod-0")
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "devices", []string{"G2"}, ids)
		n.Remove(old) // its name goes from kubelet's index although another pod has it
		if _, err := held(t.Context(), client, "pod-0"); err == nil {
			t.Error("the second pod is still found by name; kubelet's pod manager no longer drops the name with the first")
		}
	})
	t.Run("all clients together get 10 answers at once and are then refused with ResourceExhausted", func(t *testing.T) {
		startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		clients := []podresourcesapi.PodResourcesListerClient{dialPodResources(t), dialPodResources(t)}
		answered, refused := 0, 0
		for i := range 40 {
			_, err := clients[i%2].List(t.Context(), &podresourcesapi.ListPodResourcesRequest{})
			switch status.Code(err) {
			case codes.OK:
				answered++
			case codes.ResourceExhausted:
				refused++
			default:
				t.Fatal(err)
			}
		}
		if answered < 10 || refused == 0 {
			t.Errorf("%d answered and %d refused, want 10 at once and then one each 10 ms", answered, refused)
		}
	})
}

// See https://github.com/kubernetes/kubernetes/pull/137534.
func TestKubeletDoubleDevice(t *testing.T) {
	// While the plugin works on a call for the first pod, another pod ends and a client
	// asks kubelet; the third pod prefers the first one's device.
	run := func(t *testing.T, call string, ends bool, ask func(podresourcesapi.PodResourcesListerClient) error) (first, third []string) {
		t.Helper()
		inside := func(string) {}
		var prefer string
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{
			Preferred: func(available, _ []string, _ int) ([]string, error) {
				inside("GetPreferredAllocation")
				if slices.Contains(available, prefer) {
					return []string{prefer}, nil
				}
				return available[:1], nil
			},
			Allocate: func([]string) error { inside("Allocate"); return nil },
		})
		client := dialPodResources(t)
		other := app(0, 1)
		prefer = "G0"
		n.mustAdmit(t, other)
		inside = func(now string) {
			if now != call {
				return
			}
			if ends {
				n.Terminate(other)
			}
			if err := ask(client); err != nil {
				t.Error(err)
			}
		}
		a, b := app(1, 1), app(2, 1)
		prefer = "G5"
		n.mustAdmit(t, a)
		inside = func(string) {}
		n.mustAdmit(t, b)
		return n.Recorded(t, a.UID, "app"), n.Recorded(t, b.UID, "app")
	}
	list := func(c podresourcesapi.PodResourcesListerClient) error {
		_, err := c.List(t.Context(), &podresourcesapi.ListPodResourcesRequest{})
		return err
	}
	t.Run("if List is called during Allocate just after some pod ended", func(t *testing.T) {
		first, third := run(t, "Allocate", true, list)
		diff(t, "the first pod's", []string{"G5"}, first)
		diff(t, "the third pod's", []string{"G5"}, third)
	})
	t.Run("but not if List is called while no pod ends", func(t *testing.T) {
		first, third := run(t, "Allocate", false, list)
		diff(t, "the first pod's", []string{"G5"}, first)
		diff(t, "the third pod's", []string{"G1"}, third)
	})
	t.Run("nor if List is called when a pod ends while kubelet asks what is preferred", func(t *testing.T) {
		first, third := run(t, "GetPreferredAllocation", true, list)
		diff(t, "the first pod's", []string{"G5"}, first)
		diff(t, "the third pod's", []string{"G0"}, third)
	})
	t.Run("but not if Get is called", func(t *testing.T) {
		first, third := run(t, "Allocate", true, func(c podresourcesapi.PodResourcesListerClient) error {
			_, err := held(t.Context(), c, "pod-1")
			return err
		})
		diff(t, "the first pod's", []string{"G5"}, first)
		diff(t, "the third pod's", []string{"G0"}, third)
	})
}
