// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

// best returns our objective's choice from the free devices.
func best(t *testing.T, free []string, n int) []string {
	t.Helper()
	g := dgx1(t)
	mask, _ := g.Positions(free)
	set, ok := nvtopo.NewTables(g, nvtopo.DefaultWeights()).Pick(mask, mask, n, nvtopo.Constraint{})
	if !ok {
		t.Fatalf("no %d of %v", n, free)
	}
	var out []string
	for p := range set.All() {
		out = append(out, g.GPUs[p].UUID)
	}
	slices.Sort(out)
	return out
}

func TestRace11TerminatingPod(t *testing.T) {
	terminating := func(c *chain) *v1.Pod {
		old := c.bind(app(0, 2), choice{"app": ids(0, 3)})
		c.mustAdmit(old)
		c.run(old)
		deleted := c.api.update(old.UID, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		c.Update(deleted)
		return deleted
	}
	t.Run("repair gives the best of what is free", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		terminating(c)
		next := c.bind(app(1, 2), choice{"app": ids(0, 3)})
		c.mustAdmit(next)
		c.mustHold(next, choice{"app": best(t, ids(1, 2, 4, 5, 6, 7), 2)})
		diff(t, "conflicts", 1, c.decisions("conflict"))
	})
	t.Run("and leaves alone what others wait for", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		terminating(c)
		waiting := c.bind(app(2, 4), choice{"app": ids(1, 2, 4, 7)})
		next := c.bind(app(1, 2), choice{"app": ids(0, 3)})
		c.mustAdmit(next, waiting)
		c.mustHold(next, choice{"app": ids(5, 6)})
		c.mustHold(waiting, choice{"app": ids(1, 2, 4, 7)})
	})
	t.Run("strict refuses it and names the device and who has it", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true})
		old := terminating(c)
		message := c.refuse(c.bind(app(1, 2), choice{"app": ids(0, 3)}))
		mentions(t, message, "G0", old.Name)
		diff(t, "refused", 1, c.decisions("refused"))
	})
	t.Run("once it has ended its devices go to the next", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true})
		old := terminating(c)
		c.Terminate(old) // the API server still shows the object
		next := c.bind(app(1, 2), choice{"app": ids(0, 3)})
		c.mustAdmit(next)
		c.mustHold(next, choice{"app": ids(0, 3)})
	})
}

// TestRace13TwoSchedulers checks two schedulers that choose the same devices.
func TestRace13TwoSchedulers(t *testing.T) {
	t.Run("the second pod gets other devices", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p, q := c.bind(app(0, 2), choice{"app": ids(0, 3)}), c.bind(app(1, 2), choice{"app": ids(0, 3)})
		c.mustAdmit(q, p)
		c.mustHold(q, choice{"app": ids(0, 3)})
		c.mustHold(p, choice{"app": best(t, ids(1, 2, 4, 5, 6, 7), 2)})
		diff(t, "conflicts", 1, c.decisions("conflict"))
	})
	t.Run("a part of the same", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p, q := c.bind(app(0, 4), choice{"app": ids(0, 1, 2, 3)}), c.bind(app(1, 2), choice{"app": ids(3, 7)})
		c.mustAdmit(p, q)
		c.mustHold(p, choice{"app": ids(0, 1, 2, 3)})
		c.mustHold(q, choice{"app": best(t, ids(4, 5, 6, 7), 2)})
	})
	t.Run("when nothing is left for the second, kubelet refuses it", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p, q := c.bind(app(0, 8), choice{"app": ids(0, 1, 2, 3, 4, 5, 6, 7)}), c.bind(app(1, 1), choice{"app": ids(3)})
		c.mustAdmit(p)
		c.refuse(q)
	})
}

func TestRace14LostDevice(t *testing.T) {
	lose := func(c *chain, n int, entirely bool) {
		devices := devicemanager.Devices("G", 8, 0)
		devices[n].Health = pluginapi.Unhealthy
		if entirely {
			devices = slices.Delete(devices, n, n+1)
		}
		c.inner[gpu].SetDevices(devices)
		c.WaitAllocatable(c.t, gpu, 7)
	}
	for name, entirely := range map[string]bool{"unhealthy": false, "not in the list any more, as after MIG partitioning": true} {
		t.Run(name, func(t *testing.T) {
			c := startChain(t, chainOptions{})
			lose(c, 3, entirely)
			p := c.bind(app(0, 2), choice{"app": ids(0, 3)})
			c.mustAdmit(p)
			c.mustHold(p, choice{"app": best(t, ids(0, 1, 2, 4, 5, 6, 7), 2)})
			diff(t, "conflicts", 1, c.decisions("conflict"))
		})
		t.Run(name+", strict", func(t *testing.T) {
			c := startChain(t, chainOptions{strict: true})
			lose(c, 3, entirely)
			mentions(t, c.refuse(c.bind(app(0, 2), choice{"app": ids(0, 3)})), "G3")
		})
	}
	t.Run("a pod that trusts its annotation is refused in repair mode too", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		lose(c, 3, false)
		mentions(t, c.refuse(c.bind(refersToChoice(app(0, 2)), choice{"app": ids(0, 3)})), "G3")
	})
	t.Run("the device comes back", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		lose(c, 3, true)
		c.inner[gpu].SetDevices(devicemanager.Devices("G", 8, 0))
		c.waitReady()
		p := c.bind(app(0, 2), choice{"app": ids(0, 3)})
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": ids(0, 3)})
	})
}

func TestRace15ForeignPods(t *testing.T) {
	t.Run("a pod of another scheduler takes nothing that was promised", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		waiting := c.bind(app(0, 4), choice{"app": ids(0, 1, 2, 3)})
		foreign := c.bind(app(1, 4), nil)
		c.mustAdmit(foreign, waiting)
		c.mustHold(foreign, choice{"app": ids(4, 5, 6, 7)})
		c.mustHold(waiting, choice{"app": ids(0, 1, 2, 3)})
		diff(t, "conflicts", 0, c.decisions("conflict"))
	})
	t.Run("unless too little else is free, and then as little as possible", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		waiting := c.bind(app(0, 4), choice{"app": ids(0, 1, 2, 3)})
		foreign := c.bind(app(1, 6), nil)
		c.mustAdmit(foreign)
		got := c.held(foreign)["app"]
		if !partOf(ids(4, 5, 6, 7), got) {
			t.Errorf("got %v, which leaves some of G4 to G7 and takes more than 2 of what was promised", got)
		}
		c.refuse(waiting)
	})
	t.Run("a stale or malformed annotation is none", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		stale := c.bind(app(0, 2), choice{"app": ids(6, 7)})
		c.api.update(stale.UID, func(p *v1.Pod) { // as copied from another pod
			maps.Copy(p.Annotations, annotate(t, app(9, 2), choice{"app": ids(0, 7)}).Annotations)
		})
		malformed := app(1, 2)
		malformed.Annotations = map[string]string{"nvtopo.dev/allocation": `{"version":1,"GPUs":["G7"]}`}
		c.api.put(malformed)
		miscounted := c.bind(app(2, 1), choice{"app": ids(6, 7)})
		c.mustAdmit(stale, malformed, miscounted)
		c.mustHold(stale, choice{"app": ids(0, 1)})
		c.mustHold(malformed, choice{"app": ids(2, 3)})
		c.mustHold(miscounted, choice{"app": ids(4)})
		diff(t, "foreign", 3, c.decisions("foreign"))
	})
	t.Run("the inner plugin's preference counts for it, and one that fails or hangs does not stop it", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		c.innerPrefers(func([]string, []string, int) ([]string, error) { return ids(5, 6), nil })
		p := c.bind(app(0, 2), nil)
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": ids(5, 6)})
		c.innerPrefers(func([]string, []string, int) ([]string, error) { return nil, errors.New("NVML is gone") })
		q := c.bind(app(1, 2), nil)
		c.mustAdmit(q)
		c.mustHold(q, choice{"app": best(t, ids(0, 1, 2, 3, 4, 7), 2)})
		released := make(chan struct{})
		t.Cleanup(func() { close(released) })
		c.innerPrefers(func([]string, []string, int) ([]string, error) { <-released; return nil, nil })
		r := c.bind(app(2, 2), nil)
		before := time.Now()
		c.mustAdmit(r) // the inner plugin hangs until the test ends: the return shows that no admission waits for it
		t.Logf("a hanging inner plugin held kubelet up for %v", time.Since(before))
		diff(t, "devices", 2, len(c.held(r)["app"]))
	})
}

// TestRace16DoubleDevice checks kubelet giving a device twice.
func TestRace16DoubleDevice(t *testing.T) {
	// forget makes kubelet forget the devices of the pod being admitted: another client lists all pods
	// inside the RPC just after a pod ended.
	forget := func(c *chain, ended *v1.Pod) {
		client := dialPodResources(c.t)
		once := sync.Once{}
		c.inside(func(string, []string) error {
			var err error
			once.Do(func() {
				c.Terminate(ended)
				_, err = client.List(context.Background(), &podresourcesapi.ListPodResourcesRequest{})
			})
			return err
		})
	}
	t.Run("what the choice of the next pod is makes it harmless", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		ended := c.bind(app(0, 1), choice{"app": ids(7)})
		c.mustAdmit(ended)
		forget(c, ended)
		p, q := c.bind(app(1, 2), choice{"app": ids(0, 5)}), c.bind(app(2, 2), choice{"app": ids(1, 6)})
		c.mustAdmit(p, q)
		c.mustHold(p, choice{"app": ids(0, 5)})
		c.mustHold(q, choice{"app": ids(1, 6)})
	})
	t.Run("a foreign pod is steered away from what kubelet offers although it is taken", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		ended := c.bind(app(0, 1), choice{"app": ids(7)})
		c.mustAdmit(ended)
		forget(c, ended)
		p, foreign := c.bind(app(1, 2), choice{"app": ids(0, 1)}), c.bind(app(2, 2), nil)
		c.mustAdmit(p, foreign)
		c.mustHold(p, choice{"app": ids(0, 1)})
		c.mustHold(foreign, choice{"app": ids(2, 3)})
	})
	t.Run("what kubelet takes unasked is refused", func(t *testing.T) {
		// Four devices on each NUMA node: kubelet takes four without a call once it believes that all four are
		// free.
		c := startChain(t, chainOptions{numa: 2, kubelet: devicemanager.Options{NUMANodes: 2, Policy: "best-effort"}})
		ended := c.bind(app(0, 1), choice{"app": ids(3)})
		c.mustAdmit(ended)
		forget(c, ended)
		p := c.bind(app(1, 1), choice{"app": ids(0)})
		c.mustAdmit(p)
		mentions(t, c.refuse(c.bind(app(2, 4), nil)), "G0")
		diff(t, "double bookings", 1.0, c.metric("nvtopo_agent_double_book_total"))
		c.mustHold(p, choice{"app": ids(0)})
	})
	pair := func(i, a, b int) *v1.Pod {
		return devicemanager.Pod(app(i, 0).Name, i, devicemanager.Container("a", gpu, a), devicemanager.Container("b", gpu, b))
	}
	t.Run("another container of the pod is steered away from it", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		ended := c.bind(app(0, 1), choice{"app": ids(7)})
		holder := c.bind(app(1, 4), choice{"app": ids(0, 1, 2, 3)})
		c.mustAdmit(ended, holder)
		c.bind(app(2, 2), choice{"app": ids(4, 7)})
		forget(c, ended)
		p := c.bind(pair(3, 1, 2), choice{"a": ids(0), "b": ids(5, 6)}) // a has to take devices chosen for b
		c.mustAdmit(p)
		got := c.held(p)
		if all := slices.Sorted(slices.Values(slices.Concat(got["a"], got["b"]))); len(slices.Compact(all)) != 3 {
			t.Errorf("the pod holds %v, want three devices", got)
		}
	})
	t.Run("and the pod is refused if kubelet takes it for that unasked", func(t *testing.T) {
		c := startChain(t, chainOptions{numa: 2, kubelet: devicemanager.Options{NUMANodes: 2, Policy: "best-effort"}})
		ended := c.bind(app(0, 1), choice{"app": ids(3)})
		c.mustAdmit(ended)
		forget(c, ended)
		mentions(t, c.refuse(c.bind(pair(1, 1, 4), choice{"a": ids(0), "b": ids(4, 5, 6, 7)})), "G0", "container a")
		diff(t, "double bookings", 1.0, c.metric("nvtopo_agent_double_book_total"))
	})
}

func TestRace17ConcurrentAllocate(t *testing.T) {
	// Without a record, kubelet allocates when containers start again, each in its pod's own worker and not
	// one at a time.
	c := startChain(t, chainOptions{})
	p, q := c.bind(app(0, 2), choice{"app": ids(1, 6)}), c.bind(app(1, 2), choice{"app": ids(0, 3)})
	c.mustAdmit(p, q)
	c.run(p)
	c.run(q)
	c.restart(t, devicemanager.Restart{LoseCheckpoint: true})
	c.waitReady()
	// The second worker is let in while the first is inside the inner plugin's Allocate. Kubelet itself does
	// not survive that (https://github.com/kubernetes/kubernetes/issues/130050): the first worker panics
	// once it has recorded its devices.
	inFirst, second := make(chan struct{}), make(chan struct{})
	once := sync.Once{}
	c.inside(func(string, []string) error {
		first := false
		once.Do(func() { first = true })
		if first {
			close(inFirst)
			select {
			case <-second:
			case <-time.After(devicemanager.Patience):
				return errors.New("the second worker is stuck behind the first")
			}
		}
		return nil
	})
	crash := make(chan any, 1)
	go func() {
		defer func() { crash <- recover() }()
		if _, err := c.StartContainer(t.Context(), p, "app"); err != nil {
			t.Errorf("the first worker: %v", err)
		}
	}()
	<-inFirst
	if _, err := c.StartContainer(t.Context(), q, "app"); err != nil {
		t.Errorf("the second worker: %v", err)
	}
	close(second)
	if <-crash == nil {
		t.Error("kubelet survived; its pod workers no longer need to take turns here")
	}
	c.restart(t, devicemanager.Restart{})
	c.waitReady()
	c.mustHold(p, choice{"app": ids(1, 6)})
	c.mustHold(q, choice{"app": ids(0, 3)})
}
