// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

// The races that could separate the scheduler's choice from kubelet's record, by number; doc.go has the
// list. Each is played on kubelet's own device manager.

func TestRace01EqualCounts(t *testing.T) {
	for name, reversed := range map[string]bool{"admitted as created": false, "admitted the other way round": true} {
		t.Run(name, func(t *testing.T) {
			c := startChain(t, chainOptions{})
			pods := []*v1.Pod{c.bind(app(0, 2), choice{"app": ids(1, 6)}), c.bind(app(1, 2), choice{"app": ids(0, 3)})}
			order := slices.Clone(pods)
			if reversed {
				slices.Reverse(order)
			}
			c.mustAdmit(order...)
			c.mustHold(pods[0], choice{"app": ids(1, 6)})
			c.mustHold(pods[1], choice{"app": ids(0, 3)})
			diff(t, "questions answered with the choice", 2, c.decisions("steered"))
			diff(t, "identities by PodResources", 2.0, c.metric("nvtopo_agent_identity_total", "get"))
			diff(t, "ambiguous questions", 0.0, c.metric("nvtopo_agent_ambiguous_total"))
		})
	}
}

// TestRace02AdmissionOrder checks all admission orders of four pods that were bound in one order.
func TestRace02AdmissionOrder(t *testing.T) {
	c := startChain(t, chainOptions{})
	sets := [][]string{ids(0, 5), ids(1, 7), ids(2, 4), ids(3, 6)}
	created := 0
	for _, order := range permutations(len(sets)) {
		pods := make([]*v1.Pod, len(sets))
		for i := range pods {
			pods[i] = c.bind(app(created, 2), choice{"app": sets[i]})
			created++
		}
		for _, i := range order {
			c.mustAdmit(pods[i])
		}
		for i, p := range pods {
			diff(t, fmt.Sprintf("pod %d admitted in the order %v", i, order), choice{"app": sets[i]}, c.held(p))
			c.end(p)
		}
	}
}

func TestRace03InformerLag(t *testing.T) {
	t.Run("a pod that the watch has not seen is found by one list", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		unseen := c.bind(app(0, 2), choice{"app": ids(2, 7)})
		c.api.hide(unseen.UID)
		c.mustAdmit(unseen)
		c.mustHold(unseen, choice{"app": ids(2, 7)})
		diff(t, "lists", 1, c.api.lists)
	})
	t.Run("also while other pods of its size wait", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		waiting, unseen := c.bind(app(0, 2), choice{"app": ids(0, 1)}), c.bind(app(1, 2), choice{"app": ids(2, 7)})
		c.api.hide(unseen.UID)
		c.mustAdmit(unseen, waiting)
		c.mustHold(unseen, choice{"app": ids(2, 7)})
		c.mustHold(waiting, choice{"app": ids(0, 1)})
	})
	t.Run("one that even the API server does not show is kept off what others were promised", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		waiting, unseen := c.bind(app(0, 2), choice{"app": ids(0, 1)}), c.bind(app(1, 2), choice{"app": ids(2, 7)})
		c.api.hide(unseen.UID)
		c.api.down = true
		c.mustAdmit(unseen)
		diff(t, "what the unseen pod got", choice{"app": ids(2, 3)}, c.held(unseen)) // the inner plugin prefers the lowest
		c.mustAdmit(waiting)
		c.mustHold(waiting, choice{"app": ids(0, 1)})
		diff(t, "foreign", 1, c.decisions("foreign"))
	})
	t.Run("a pod that the watch still shows does not get what its successor was promised", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		old := c.bind(app(0, 2), choice{"app": ids(3, 5)})
		c.mustAdmit(old)
		c.api.linger(old.UID)
		c.end(old)
		next := c.bind(app(1, 2), choice{"app": ids(3, 5)})
		c.mustAdmit(next)
		c.mustHold(next, choice{"app": ids(3, 5)})
	})
}

func TestRace04ExtraCandidates(t *testing.T) {
	t.Run("a pod deleted before it was admitted is no rival", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		dead := c.bind(app(0, 2), choice{"app": ids(0, 1)})
		dead = c.api.update(dead.UID, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		c.Update(dead) // kubelet knows it and never admits it
		p := c.bind(app(1, 2), choice{"app": ids(2, 5)})
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": ids(2, 5)})
	})
	t.Run("a running pod that kubelet has lost the record of is no rival", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		running := c.bind(app(0, 2), choice{"app": ids(0, 1)})
		c.mustAdmit(running)
		c.run(running)
		c.restart(t, devicemanager.Restart{LoseCheckpoint: true})
		c.waitReady()
		p := c.bind(app(1, 2), choice{"app": ids(2, 5)})
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": ids(2, 5)})
	})
	t.Run("a refused pod whose failure the API server has not heard of is no rival", func(t *testing.T) {
		late := errors.New("no room for its CPUs")
		c := startChain(t, chainOptions{kubelet: devicemanager.Options{Late: func(*v1.Pod) error { return late }}})
		refused := c.bind(app(0, 2), choice{"app": ids(0, 1)})
		if c.Admit(refused) == nil {
			t.Fatal("admitted")
		}
		late = nil
		p := c.bind(app(1, 2), choice{"app": ids(2, 5)})
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": ids(2, 5)})
	})
	t.Run("a static pod takes nothing that was promised, whether or not its mirror is there", func(t *testing.T) {
		for _, mirrored := range []bool{true, false} {
			c := startChain(t, chainOptions{})
			waiting := c.bind(app(0, 2), choice{"app": ids(0, 1)})
			static := app(1, 2)
			static.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": string(static.UID)}
			if mirrored {
				mirror := static.DeepCopy()
				mirror.UID = "mirror"
				mirror.Annotations[v1.MirrorPodAnnotationKey] = string(static.UID)
				c.api.put(mirror)
			}
			c.mustAdmit(static)
			diff(t, "the static pod's", choice{"app": ids(2, 3)}, c.held(static))
			c.mustAdmit(waiting)
			c.mustHold(waiting, choice{"app": ids(0, 1)})
			c.stop()
		}
	})
}

func TestRace05InitContainers(t *testing.T) {
	initApp := func(i, first, then int) *v1.Pod {
		return devicemanager.WithInit(app(i, then), devicemanager.Container("init", gpu, first))
	}
	t.Run("2 then 4: the app is given the init container's and the rest of its choice", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p := c.bind(initApp(0, 2, 4), choice{"init": ids(3, 5), "app": ids(1, 3, 5, 7)})
		other := c.bind(initApp(1, 2, 4), choice{"init": ids(0, 2), "app": ids(0, 2, 4, 6)})
		c.mustAdmit(other, p)
		c.mustHold(p, choice{"init": ids(3, 5), "app": ids(1, 3, 5, 7)})
		c.mustHold(other, choice{"init": ids(0, 2), "app": ids(0, 2, 4, 6)})
	})
	t.Run("2 then 2, with the same choice for both", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p := c.bind(initApp(0, 2, 2), choice{"init": ids(3, 5), "app": ids(3, 5)})
		other := c.bind(app(1, 2), choice{"app": ids(0, 1)})
		c.mustAdmit(p, other)
		c.mustHold(p, choice{"init": ids(3, 5), "app": ids(3, 5)})
		c.mustHold(other, choice{"app": ids(0, 1)})
	})
	t.Run("4 then 2: kubelet draws the app's from the init container's, the pod's set is the chosen one", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p := c.bind(initApp(0, 4, 2), choice{"init": ids(0, 3, 5, 6), "app": ids(0, 3)})
		other := c.bind(app(1, 2), choice{"app": ids(1, 2)})
		c.mustAdmit(p, other)
		got := c.held(p)
		diff(t, "init", ids(0, 3, 5, 6), got["init"])
		diff(t, "the pod's set", ids(0, 3, 5, 6), got.all())
		diff(t, "devices of the app", 2, len(got["app"]))
		c.mustHold(p, got)
		c.mustHold(other, choice{"app": ids(1, 2)})
	})
	t.Run("only an init container asks", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p := c.bind(initApp(0, 2, 0), choice{"init": ids(4, 7)})
		other := c.bind(initApp(1, 2, 0), choice{"init": ids(1, 2)})
		c.mustAdmit(other, p)
		c.mustHold(p, choice{"init": ids(4, 7)})
		c.mustHold(other, choice{"init": ids(1, 2)})
	})
	t.Run("two init containers, 2 then 3, and an app with 4", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p := devicemanager.WithInit(app(0, 4), devicemanager.Container("one", gpu, 2), devicemanager.Container("two", gpu, 3))
		want := choice{"one": ids(1, 6), "two": ids(1, 2, 6), "app": ids(1, 2, 6, 7)}
		c.mustAdmit(c.bind(p, want))
		c.mustHold(p, want)
	})
	t.Run("a sidecar and an app, beside a pod of two containers with the same counts", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p := c.bind(devicemanager.WithInit(app(0, 2), devicemanager.Sidecar("sidecar", gpu, 1)), choice{"sidecar": ids(7), "app": ids(0, 4)})
		q := c.bind(devicemanager.Pod("two", 1, devicemanager.Container("a", gpu, 1), devicemanager.Container("b", gpu, 2)),
			choice{"a": ids(6), "b": ids(2, 3)})
		c.mustAdmit(q, p)
		c.mustHold(p, choice{"sidecar": ids(7), "app": ids(0, 4)})
		c.mustHold(q, choice{"a": ids(6), "b": ids(2, 3)})
	})
	t.Run("a sidecar between an init container and the app takes the init container's", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		p := devicemanager.WithInit(app(0, 2), devicemanager.Container("init", gpu, 2), devicemanager.Sidecar("sidecar", gpu, 2))
		want := choice{"init": ids(2, 3), "sidecar": ids(2, 3), "app": ids(5, 7)}
		c.mustAdmit(c.bind(p, want))
		c.mustHold(p, want)
	})
}

func TestRace06SeveralResources(t *testing.T) {
	const rdma = "example.com/rdma"
	both := func(i int) *v1.Pod {
		p := app(i, 2)
		maps.Copy(p.Spec.Containers[0].Resources.Limits, devicemanager.Container("x", rdma, 1).Resources.Limits)
		return p
	}
	refusing := ""
	c := startChain(t, chainOptions{extra: []string{rdma}})
	c.inside(func(resource string, _ []string) error {
		if resource == refusing {
			return errors.New("not now")
		}
		return nil
	})
	// kubelet asks for the resources in the random order of a map: many pods see both orders.
	for i := range 16 {
		p := annotateResources(t, both(2*i), map[string]choice{gpu: {"app": ids(1, 6)}, rdma: {"app": {"X3"}}})
		q := annotateResources(t, both(2*i+1), map[string]choice{gpu: {"app": ids(0, 5)}, rdma: {"app": {"X1"}}})
		c.api.put(p)
		c.api.put(q)
		if i%4 == 3 { // one resource served, then the other refused
			refusing = []string{gpu, rdma}[i/4%2]
			if c.Admit(p) == nil {
				t.Fatal("admitted")
			}
			refusing = ""
			c.mustAdmit(q)
		} else {
			c.mustAdmit(q, p)
			diff(t, fmt.Sprintf("pod %d", 2*i), choice{"app": append(ids(1, 6), "X3")}, c.held(p))
		}
		diff(t, fmt.Sprintf("pod %d", 2*i+1), choice{"app": append(ids(0, 5), "X1")}, c.held(q))
		c.end(p)
		c.end(q)
	}
}

func TestRace07RefusedAfterAllocate(t *testing.T) {
	refuse := true
	c := startChain(t, chainOptions{kubelet: devicemanager.Options{Late: func(*v1.Pod) error {
		if refuse {
			return errors.New("predicate")
		}
		return nil
	}}})
	refused := c.bind(app(0, 2), choice{"app": ids(3, 4)})
	if c.Admit(refused) == nil {
		t.Fatal("admitted")
	}
	refuse = false
	// The scheduler gives the same devices to the next pod, and the watch still shows the refused one as
	// pending.
	next := c.bind(app(1, 2), choice{"app": ids(3, 4)})
	c.mustAdmit(next)
	c.mustHold(next, choice{"app": ids(3, 4)})
	diff(t, "conflicts", 0, c.decisions("conflict"))
}

func TestRace08KubeletRestart(t *testing.T) {
	t.Run("running pods keep their devices, waiting ones get theirs", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		running := c.bind(app(0, 2), choice{"app": ids(1, 6)})
		c.mustAdmit(running)
		c.run(running)
		waiting := c.bind(app(1, 2), choice{"app": ids(0, 3)})
		before := time.Now()
		c.restart(t, devicemanager.Restart{})
		c.waitReady()
		t.Logf("registered again after %v", time.Since(before))
		c.mustAdmit(waiting)
		c.mustHold(running, choice{"app": ids(1, 6)})
		c.mustHold(waiting, choice{"app": ids(0, 3)})
	})
	t.Run("five restarts in a row", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		for i := range 5 {
			c.restart(t, devicemanager.Restart{})
			c.waitReady()
			p := c.bind(app(i, 1), choice{"app": ids(7 - i)})
			c.mustAdmit(p)
			c.run(p)
			c.mustHold(p, choice{"app": ids(7 - i)})
		}
	})
	t.Run("with the record lost, what runs is given to nobody else and comes back to its own container", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		running := c.bind(app(0, 2), choice{"app": ids(0, 1)})
		c.mustAdmit(running)
		c.run(running)
		c.restart(t, devicemanager.Restart{LoseCheckpoint: true})
		c.waitReady()
		foreign := c.bind(app(1, 2), nil)
		c.mustAdmit(foreign) // kubelet offers it all 8, and the inner plugin prefers the lowest
		diff(t, "the foreign pod's", choice{"app": ids(2, 3)}, c.held(foreign))
		if _, err := c.StartContainer(t.Context(), running, "app"); err != nil {
			t.Fatalf("starting the container again: %v", err)
		}
		c.mustHold(running, choice{"app": ids(0, 1)})
	})
	t.Run("a pod that was promised what runs without a record does not get it", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		running := c.bind(app(0, 2), choice{"app": ids(0, 1)})
		c.mustAdmit(running)
		c.run(running)
		c.restart(t, devicemanager.Restart{LoseCheckpoint: true})
		c.waitReady()
		p := c.bind(app(1, 2), choice{"app": ids(1, 2)})
		c.mustAdmit(p)
		if got := c.held(p); slices.Contains(got["app"], "G0") || slices.Contains(got["app"], "G1") {
			t.Errorf("got %v although G0 and G1 run", got)
		}
	})
	t.Run("what kubelet takes unasked although it runs without a record is refused", func(t *testing.T) {
		for name, tc := range map[string]struct{ runs, broken []int }{
			"a part of it":     {runs: []int{0}},
			"exactly the same": {runs: []int{0, 1}, broken: []int{2, 3}},
		} {
			c := startChain(t, chainOptions{numa: 2, kubelet: devicemanager.Options{NUMANodes: 2, Policy: "best-effort"}})
			running := c.bind(app(0, len(tc.runs)), choice{"app": ids(tc.runs...)})
			c.mustAdmit(running)
			c.run(running)
			devices := devicemanager.Devices("G", 8, 2)
			for _, i := range tc.broken {
				devices[i].Health = pluginapi.Unhealthy
			}
			c.inner[gpu].SetDevices(devices)
			healthy := 8 - len(tc.broken)
			c.WaitAllocatable(t, gpu, int64(healthy))
			c.restart(t, devicemanager.Restart{LoseCheckpoint: true})
			c.WaitAllocatable(t, gpu, int64(healthy))
			// Kubelet takes all healthy devices of NUMA node 0.
			next := c.bind(app(1, healthy-4), choice{"app": ids(4, 5, 6, 7)[:healthy-4]})
			if refusal := c.Admit(next); refusal == nil {
				t.Errorf("%s: %s was admitted with %v, where %s runs", name, next.Name, c.held(next), running.Name)
			} else {
				mentions(t, refusal.Message, "G0")
			}
			c.stop()
		}
	})
	t.Run("of two pods that run without a record, the one that starts again gets its own or nothing", func(t *testing.T) {
		for restarts := range 2 {
			c := startChain(t, chainOptions{})
			pods := []*v1.Pod{c.bind(app(0, 2), choice{"app": ids(1, 6)}), c.bind(app(1, 2), choice{"app": ids(0, 3)})}
			own := []choice{{"app": ids(1, 6)}, {"app": ids(0, 3)}}
			c.mustAdmit(pods...)
			c.run(pods[0])
			c.run(pods[1])
			c.restart(t, devicemanager.Restart{LoseCheckpoint: true})
			c.waitReady()
			p := pods[restarts]
			c.api.update(p.UID, func(p *v1.Pod) {
				p.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			})
			_, err := c.StartContainer(t.Context(), p, "app")
			if got := c.held(p); err == nil || len(got) > 0 {
				diff(t, fmt.Sprintf("devices of pod %d, which started again", restarts), own[restarts], got)
			}
			c.stop()
		}
	})
	t.Run("a pod let in before kubelet knew of any devices has its own when it starts", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		c.stopAgent()
		c.restart(t, devicemanager.Restart{LoseCheckpoint: true})
		p := c.bind(devicemanager.WithInit(app(0, 2), devicemanager.Container("init", gpu, 1)), choice{"init": ids(6), "app": ids(2, 6)})
		c.mustAdmit(p)
		diff(t, "devices at admission", choice{}, c.held(p))
		c.startAgent()
		c.waitReady()
		for _, name := range []string{"init", "app"} {
			if _, err := c.StartContainer(t.Context(), p, name); err != nil {
				t.Fatal(err)
			}
		}
		c.mustHold(p, choice{"init": ids(6), "app": ids(2, 6)})
	})
	t.Run("after a reboot pods that come before the plugin fail and the others have what they had", func(t *testing.T) {
		for _, early := range []bool{true, false} {
			c := startChain(t, chainOptions{})
			p := c.bind(app(0, 2), choice{"app": ids(2, 7)})
			c.mustAdmit(p)
			how := devicemanager.Restart{Reboot: true}
			refused := 0
			how.Refused = func(*v1.Pod, *devicemanager.Refusal) { refused++ }
			if early {
				c.stopAgent()
			} else {
				how.Registering = c.waitReady
			}
			c.restart(t, how)
			if early {
				diff(t, "refused", 1, refused)
				c.startAgent()
				c.waitReady()
			} else {
				c.mustHold(p, choice{"app": ids(2, 7)})
			}
			c.stop()
		}
	})
}

func TestRace09AgentRestart(t *testing.T) {
	t.Run("while the agent is away pods fail, and soon after they do not", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		running := c.bind(app(0, 2), choice{"app": ids(1, 6)})
		c.mustAdmit(running)
		c.run(running)
		c.stopAgent()
		c.WaitAllocatable(t, gpu, 0)
		c.refuse(c.bind(app(1, 1), choice{"app": ids(0)}))
		before := time.Now()
		c.startAgent()
		c.waitReady()
		t.Logf("ready again after %v", time.Since(before))
		waiting := c.bind(app(2, 2), choice{"app": ids(0, 3)})
		c.mustAdmit(waiting)
		c.mustHold(running, choice{"app": ids(1, 6)})
		c.mustHold(waiting, choice{"app": ids(0, 3)})
	})
	t.Run("a new agent without its state still tells pods apart", func(t *testing.T) {
		c := startChain(t, chainOptions{memory: true})
		running := c.bind(app(0, 2), choice{"app": ids(1, 6)})
		c.mustAdmit(running)
		c.restartAgent()
		c.waitReady()
		p, q := c.bind(app(1, 2), choice{"app": ids(0, 3)}), c.bind(app(2, 2), choice{"app": ids(5, 7)})
		c.mustAdmit(q, p)
		c.mustHold(running, choice{"app": ids(1, 6)})
		c.mustHold(p, choice{"app": ids(0, 3)})
		c.mustHold(q, choice{"app": ids(5, 7)})
	})
	t.Run("the devices stay while the inner plugin restarts", func(t *testing.T) {
		c := startChain(t, chainOptions{hold: time.Hour}) // longer than any machine needs for this
		c.inner[gpu].Stop()
		for range 50 {
			if _, n := c.Capacity(gpu); n != 8 {
				t.Fatalf("allocatable fell to %d", n)
			}
			time.Sleep(2 * time.Millisecond)
		}
		c.inner[gpu].Start()
		p := c.bind(app(0, 2), choice{"app": ids(4, 7)})
		c.admitSoon(p)
		c.mustHold(p, choice{"app": ids(4, 7)})
	})
	t.Run("they are unhealthy when it stays away, and healthy when it is back", func(t *testing.T) {
		c := startChain(t, chainOptions{hold: 200 * time.Millisecond})
		c.inner[gpu].Stop()
		c.WaitAllocatable(t, gpu, 0)
		c.inner[gpu].Start()
		c.waitReady()
		p := c.bind(app(0, 2), choice{"app": ids(4, 7)})
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": ids(4, 7)})
	})
	t.Run("kubelet and the inner plugin restart together", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		running := c.bind(app(0, 2), choice{"app": ids(1, 6)})
		c.mustAdmit(running)
		c.run(running)
		c.inner[gpu].Stop()
		c.restart(t, devicemanager.Restart{})
		c.inner[gpu].Start()
		c.waitReady()
		p := c.bind(app(1, 2), choice{"app": ids(4, 7)})
		c.admitSoon(p)
		c.mustHold(running, choice{"app": ids(1, 6)})
		c.mustHold(p, choice{"app": ids(4, 7)})
	})
}

func TestRace10DeletedPod(t *testing.T) {
	t.Run("kubelet never hears of it", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		gone := c.bind(app(0, 2), choice{"app": ids(0, 1)})
		c.api.linger(gone.UID)
		c.api.remove(gone.UID)
		p := c.bind(app(1, 2), choice{"app": ids(0, 1)})
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": ids(0, 1)})
	})
	t.Run("kubelet still admits it", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		deleted, p := c.bind(app(0, 2), choice{"app": ids(4, 5)}), c.bind(app(1, 2), choice{"app": ids(0, 1)})
		c.api.update(deleted.UID, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		c.mustAdmit(deleted, p)
		diff(t, "the deleted pod's", choice{"app": ids(4, 5)}, c.held(deleted))
		c.mustHold(p, choice{"app": ids(0, 1)})
	})
	t.Run("a pod of the same name follows a force-deleted one, and the watch still shows the first", func(t *testing.T) {
		for _, lingers := range []bool{true, false} {
			c := startChain(t, chainOptions{})
			old := c.bind(app(0, 2), choice{"app": ids(0, 1)})
			c.mustAdmit(old)
			if lingers {
				c.api.linger(old.UID)
			}
			c.api.remove(old.UID)
			again := app(1, 2)
			again.Name = old.Name
			c.bind(again, choice{"app": ids(5, 6)})
			c.api.hide(again.UID)
			c.Remove(old)
			c.mustAdmit(again)
			c.api.show(again.UID)
			c.mustHold(again, choice{"app": ids(5, 6)})
			c.stop()
		}
	})
	t.Run("the same with both in the watch and the same number of devices as a waiting pod", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		waiting := c.bind(app(7, 2), choice{"app": ids(2, 3)})
		old := c.bind(app(0, 2), choice{"app": ids(0, 1)})
		c.mustAdmit(old)
		c.api.linger(old.UID)
		c.api.remove(old.UID)
		again := app(1, 2)
		again.Name = old.Name
		c.bind(again, choice{"app": ids(0, 1)})
		c.Remove(old)
		c.mustAdmit(again, waiting)
		c.mustHold(again, choice{"app": ids(0, 1)})
		c.mustHold(waiting, choice{"app": ids(2, 3)})
	})
}

// stop ends a node before its test does, so that another can follow.
func (c *chain) stop() {
	c.t.Helper()
	c.audit()
	c.stopAgent()
	for _, p := range c.inner {
		p.Stop()
	}
	c.Stop()
}

// admitSoon retries the admission of a pod while the inner plugin comes back, as a controller would
// replace a failed pod.
func (c *chain) admitSoon(pod *v1.Pod) {
	c.t.Helper()
	testkit.Eventually(c.t, devicemanager.Patience, "pod "+pod.Name+" is admitted", func(context.Context) (bool, string) {
		refusal := c.Admit(pod)
		return refusal == nil, fmt.Sprint(refusal)
	})
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			out = append(out, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return out
}

// refersToChoice makes a pod strict: its first container gets our annotation as an environment variable.
func refersToChoice(p *v1.Pod) *v1.Pod {
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", ValueFrom: &v1.EnvVarSource{
		FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + allocation.GPUIDsKey + "']"},
	}}}
	return p
}

func mentions(t *testing.T, message string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(message, w) {
			t.Errorf("the message %q does not mention %s", message, w)
		}
	}
}
