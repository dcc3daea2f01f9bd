// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

var (
	historyTime = flag.Duration("history", 5*time.Second, "how long each random history of admissions and restarts goes on")
	historySeed = flag.Uint64("seed", 1, "seed of the first random history")
)

// TestRandomHistory plays random histories of pods and failures on one node. After every step no device
// belongs to two live pods and kubelet's record is what the inner plugin was told; every admitted pod has
// exactly its chosen devices, unless that was impossible when it was admitted; and pods are refused only
// while something restarts, or for want of devices.
func TestRandomHistory(t *testing.T) {
	aligned := chainOptions{numa: 2, kubelet: devicemanager.Options{NUMANodes: 2, Policy: "best-effort"}}
	for i, o := range []chainOptions{{}, {strict: true}, {memory: true}, aligned} {
		seed := *historySeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			h := &history{
				random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}, healthy: slices.Repeat([]bool{true}, 8),
				chosen: map[types.UID]choice{}, actual: map[types.UID]choice{}, passed: map[types.UID]choice{},
			}
			o.kubelet.Late = h.predicate
			h.chain = startChain(t, o)
			for end := time.Now().Add(*historyTime); time.Now().Before(end) && !t.Failed(); {
				h.step()
				h.audit()
			}
			if t.Failed() {
				t.Logf("the last steps:\n%s", strings.Join(h.log[max(0, len(h.log)-40):], "\n"))
			}
			t.Logf("counts: %v", h.counts)
		})
	}
}

// history is a node and its expected state.
type history struct {
	*chain
	random  *rand.Rand
	number  int                  // of created pods
	waiting []*v1.Pod            // bound, not admitted
	running []*v1.Pod            // admitted, oldest first
	chosen  map[types.UID]choice // of pods with a choice
	actual  map[types.UID]choice // devices that the containers of running pods got, even if kubelet forgot them
	passed  map[types.UID]choice // devices that pods held when they passed predicate
	healthy []bool               // by device
	failed  []*v1.Pod            // ran, and a new kubelet refused them
	log     []string
	counts  map[string]int
}

func (h *history) say(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) step() {
	steps := []struct {
		weight int
		name   string
		do     func()
	}{
		{30, "bind", h.bindBurst},
		{40, "admit", func() { h.admitOne(false) }},
		{25, "end", h.endOne},
		{3, "delete", h.deleteWaiting},
		{3, "start again", h.startAgain},
		{2, "health", h.changeHealth},
		{2, "kubelet", func() { h.disturb("kubelet", func() { h.restartKubelet(false) }) }},
		{h.losable(), "kubelet without its record", func() { h.disturb("kubelet without its record", func() { h.restartKubelet(true) }) }},
		{2, "agent", func() { h.disturb("agent", h.crashAgent) }},
		{2, "inner plugin", func() { h.disturb("inner plugin", h.restartInner) }},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	pick := h.random.IntN(total)
	for _, s := range steps {
		if pick -= s.weight; pick < 0 {
			h.counts[s.name]++
			s.do()
			return
		}
	}
}

// losable is the weight of a kubelet losing its record: none for an agent without state, since after its
// restart too, the running pods' devices would be unknown.
func (h *history) losable() int {
	if h.options.memory {
		return 0
	}
	return 1
}

// predicate is kubelet's handler that refuses a pod for which the node offers no devices: without its
// record and before plugins register, kubelet's device manager does not know the resource and lets the
// pod pass. It also records a pod's devices before any restart can make kubelet forget them.
func (h *history) predicate(pod *v1.Pod) error {
	if h.passed[pod.UID] != nil {
		return nil // admitted by the kubelet before
	}
	got := h.held(pod)
	if len(got) == 0 {
		return errors.New("OutOf" + gpu)
	}
	h.passed[pod.UID] = got
	return nil
}

// taken returns the devices of the pods in the scheduler's cache, and of kubelet's record.
func (h *history) taken() map[string]bool {
	out := map[string]bool{}
	for _, p := range slices.Concat(h.waiting, h.running) {
		for _, id := range h.chosen[p.UID].all() {
			out[id] = true
		}
		for _, id := range h.actual[p.UID].all() {
			out[id] = true
		}
	}
	for i, ok := range h.healthy {
		if !ok {
			out[ids(i)[0]] = true
		}
	}
	return out
}

// bindBurst binds up to four pods of one shape, as one job would.
func (h *history) bindBurst() {
	shape := h.random.IntN(len(shapes))
	for range 1 + h.random.IntN(4) {
		taken := h.taken()
		free := slices.DeleteFunc(ids(h.random.Perm(8)...), func(id string) bool { return taken[id] })
		need := shapes[shape].devices
		if len(free) < need {
			return
		}
		h.number++
		pod := shapes[shape].pod(fmt.Sprintf("pod-%d", h.number), h.number)
		want := shapes[shape].choose(free)
		if h.random.IntN(10) == 0 {
			// Another scheduler's pod: counted, without a choice, and never so many that it could not be kept off
			// promised devices.
			pod = h.bind(pod, nil)
			h.admitNow(pod, false)
			h.say("bind foreign %s %s", pod.Name, shapes[shape].name)
			continue
		}
		pod = h.bind(pod, want)
		h.chosen[pod.UID] = want
		if h.random.IntN(5) == 0 {
			h.api.hide(pod.UID)
		}
		h.waiting = append(h.waiting, pod)
		h.say("bind %s %s %v", pod.Name, shapes[shape].name, want)
	}
}

// shape is a kind of pod and the way its choice is made from free devices.
type shape struct {
	name    string
	devices int
	pod     func(name string, i int) *v1.Pod
	choose  func(free []string) choice
}

func sortedPart(free []string, from, to int) []string {
	return slices.Sorted(slices.Values(free[from:to]))
}

func single(n int) shape {
	return shape{
		strconv.Itoa(n), n,
		func(name string, i int) *v1.Pod {
			return devicemanager.Pod(name, i, devicemanager.Container("app", gpu, n))
		},
		func(free []string) choice { return choice{"app": sortedPart(free, 0, n)} },
	}
}

var shapes = []shape{
	single(1), single(1), single(2), single(2), single(4),
	{
		"1+1", 2,
		func(name string, i int) *v1.Pod {
			return devicemanager.Pod(name, i, devicemanager.Container("a", gpu, 1), devicemanager.Container("b", gpu, 1))
		},
		func(free []string) choice { return choice{"a": free[:1], "b": free[1:2]} },
	},
	{
		"init 1, app 2", 2,
		func(name string, i int) *v1.Pod {
			return devicemanager.WithInit(devicemanager.Pod(name, i, devicemanager.Container("app", gpu, 2)), devicemanager.Container("init", gpu, 1))
		},
		func(free []string) choice { return choice{"init": free[:1], "app": sortedPart(free, 0, 2)} },
	},
	{
		"init 2, app 2", 2,
		func(name string, i int) *v1.Pod {
			return devicemanager.WithInit(devicemanager.Pod(name, i, devicemanager.Container("app", gpu, 2)), devicemanager.Container("init", gpu, 2))
		},
		func(free []string) choice {
			return choice{"init": sortedPart(free, 0, 2), "app": sortedPart(free, 0, 2)}
		},
	},
	{
		"sidecar 1, app 2", 3,
		func(name string, i int) *v1.Pod {
			return devicemanager.WithInit(devicemanager.Pod(name, i, devicemanager.Container("app", gpu, 2)), devicemanager.Sidecar("sidecar", gpu, 1))
		},
		func(free []string) choice { return choice{"sidecar": free[:1], "app": sortedPart(free, 1, 3)} },
	},
}

// admitOne admits one of the waiting pods, in no particular order.
func (h *history) admitOne(disturbed bool) {
	if len(h.waiting) == 0 {
		return
	}
	i := h.random.IntN(len(h.waiting))
	pod := h.waiting[i]
	h.waiting = slices.Delete(h.waiting, i, i+1)
	h.admitNow(pod, disturbed)
}

// admitNow admits a pod and checks its devices. While something restarts it may be refused, but must not
// get other devices than chosen.
func (h *history) admitNow(pod *v1.Pod, disturbed bool) {
	want := h.chosen[pod.UID]
	possible := h.possible(want)
	refusal := h.Admit(pod)
	h.say("admit %s: %v, refusal %v", pod.Name, h.held(pod), refusal)
	h.api.show(pod.UID)
	if refusal != nil {
		h.counts["refused"]++
		if !disturbed && possible && h.free() && want != nil {
			h.t.Errorf("%s was refused although %v was free: %v", pod.Name, want, refusal)
		}
		h.drop(pod)
		return
	}
	got := h.passed[pod.UID]
	if want != nil && possible && h.free() && !maps.EqualFunc(want, got, slices.Equal) {
		h.t.Errorf("%s got %v, want %v", pod.Name, got, want)
	}
	for _, p := range h.running {
		for _, id := range h.actual[p.UID].all() {
			if slices.Contains(got.all(), id) {
				testkit.Violation(h.t, "%s got %v, of which %s runs in %s", pod.Name, got, id, p.Name)
			}
		}
	}
	h.counts["admitted"]++
	h.actual[pod.UID] = got
	h.run(pod)
	h.running = append(h.running, pod)
}

// free reports whether kubelet leaves the choice to us. If it aligns devices, a random choice is often
// outside of its offer.
func (h *history) free() bool { return h.options.kubelet.Policy == "" }

// possible reports whether kubelet can give the choice: all of it is healthy and no other live pod holds
// any.
func (h *history) possible(want choice) bool {
	bad := map[string]bool{}
	for i, ok := range h.healthy {
		bad[ids(i)[0]] = !ok
	}
	for _, p := range h.running {
		for _, id := range h.actual[p.UID].all() {
			bad[id] = true
		}
	}
	return !slices.ContainsFunc(want.all(), func(id string) bool { return bad[id] })
}

func (h *history) drop(pod *v1.Pod) {
	h.end(pod)
	delete(h.chosen, pod.UID)
	delete(h.actual, pod.UID)
}

func (h *history) endOne() {
	if len(h.running) == 0 {
		return
	}
	i := h.random.IntN(len(h.running))
	pod := h.running[i]
	h.running = slices.Delete(h.running, i, i+1)
	h.say("end %s", pod.Name)
	h.drop(pod)
}

// deleteWaiting deletes a pod that kubelet may still admit.
func (h *history) deleteWaiting() {
	if len(h.waiting) == 0 {
		return
	}
	i := h.random.IntN(len(h.waiting))
	pod := h.waiting[i]
	if h.random.IntN(2) == 0 {
		h.say("%s is being deleted", pod.Name)
		h.api.update(pod.UID, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		return
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	h.say("%s is gone before its admission", pod.Name)
	h.drop(pod)
}

// startAgain restarts a running container: its environment must equal the record.
func (h *history) startAgain() {
	if len(h.running) == 0 {
		return
	}
	pod := h.running[h.random.IntN(len(h.running))]
	if len(h.held(pod)) == 0 {
		return // kubelet has lost its record and would allocate anew; see TestRace08KubeletRestart
	}
	for _, c := range pod.Spec.Containers {
		env, err := h.StartContainer(h.t.Context(), pod, c.Name)
		if err != nil {
			h.t.Errorf("starting %s/%s again: %v", pod.Name, c.Name, err)
			continue
		}
		diff(h.t, "environment of "+pod.Name, strings.Join(h.held(pod)[c.Name], ","), env[devicemanager.VisibleEnv])
	}
}

// changeHealth makes a device that no pod has unhealthy, or makes one healthy.
func (h *history) changeHealth() {
	i := h.random.IntN(8)
	if h.healthy[i] && h.taken()[ids(i)[0]] {
		return
	}
	h.healthy[i] = !h.healthy[i]
	h.say("G%d healthy: %v", i, h.healthy[i])
	h.inner[gpu].SetDevices(h.devices())
	h.settle()
}

func (h *history) devices() []*pluginapi.Device {
	devices := devicemanager.Devices("G", 8, h.options.numa)
	for i, ok := range h.healthy {
		if !ok {
			devices[i].Health = pluginapi.Unhealthy
		}
	}
	return devices
}

// settle waits until kubelet offers every healthy device.
func (h *history) settle() {
	n := int64(0)
	for _, ok := range h.healthy {
		if ok {
			n++
		}
	}
	h.WaitAllocatable(h.t, gpu, n)
}

// disturb restarts something while pods are admitted, and waits until the node is ready again.
func (h *history) disturb(name string, restart func()) {
	h.say("%s restarts", name)
	done := make(chan struct{})
	go func() {
		defer close(done)
		restart()
	}()
	for range h.random.IntN(4) {
		h.admitOne(true)
	}
	<-done
	if h.t.Failed() {
		return // perhaps without an agent
	}
	h.dropFailed()
	h.quiesce()
	h.say("%s is back", name)
}

// quiesce waits until a pod could be admitted: kubelet offers the devices, by the current connection.
func (h *history) quiesce() {
	testkit.Eventually(h.t, devicemanager.Patience, "the agent is ready after a restart", func(context.Context) (bool, string) {
		s := h.agent.interposer.Resources()
		return len(s) == 1 && s[0].InnerConnected && s[0].Registered, fmt.Sprintf("%+v", s)
	})
	h.settle()
}

func (h *history) restartKubelet(loses bool) {
	err := h.Restart(devicemanager.Restart{LoseCheckpoint: loses, Refused: func(p *v1.Pod, r *devicemanager.Refusal) {
		if len(p.Spec.InitContainers) == 0 {
			h.t.Errorf("running pod %s was refused by a new kubelet: %v", p.Name, r)
		}
		h.failed = append(h.failed, p)
	}})
	if err != nil {
		h.t.Error(err)
	}
}

// dropFailed ends the pods that a new kubelet failed although they ran: those with devices in init
// containers, see TestKubeletRestart.
func (h *history) dropFailed() {
	for _, pod := range h.failed {
		h.counts["failed by a new kubelet"]++
		h.say("a new kubelet failed %s", pod.Name)
		h.running = slices.DeleteFunc(h.running, func(p *v1.Pod) bool { return p.UID == pod.UID })
		h.drop(pod)
	}
	h.failed = nil
}

// crashAgent ends the agent and starts another from the state that a crash would have left.
func (h *history) crashAgent() {
	left, err := os.MkdirTemp(h.t.TempDir(), "state")
	if err == nil && h.state != "" {
		err = copyFiles(h.state, left)
	}
	if err != nil {
		h.t.Error(err)
		return
	}
	if h.state != "" {
		h.state = left
	}
	h.restartAgent()
}

// copyFiles copies the complete files of a directory: names with a dot are being written.
func copyFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *history) restartInner() {
	h.inner[gpu].Stop()
	time.Sleep(20 * time.Millisecond)
	h.inner[gpu].Start()
}
