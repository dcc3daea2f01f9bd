// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	// casesEnv is the number of pods in the test of the prediction; few by default.
	casesEnv     = "NVTOPO_PREDICT_CASES"
	defaultCases = 600
	// seedEnv is the seed of the cases.
	seedEnv    = "NVTOPO_PREDICT_SEED"
	perMachine = 25 // pods for one machine
)

// tally is one row of the result.
type tally struct {
	accepted, refused int
	boundButRefused   int // bound by us, then refused by kubelet: must not be
	notHonoured       int // other devices than chosen: must not be
	chance            int // kubelet decides at random which of the pod's devices a container has
	ownPolicy         int // refused because of the pod's own policy
	tooCareful        map[string]int
}

// prediction is one run of the test.
type prediction struct {
	t     *testing.T
	r     *rand.Rand
	rows  map[string]*tally
	next  int // pod number
	sched *scheduler

	covered coverage
}

// coverage counts properties of the bound pods.
type coverage struct{ several, init, exclusive, spanning, twoKinds, inFlight, overtaken int }

func (c *coverage) count(pod *v1.Pod, a *allocation.Allocation) {
	containers, kinds := map[string]bool{}, map[string]bool{}
	left := 0
	for _, part := range a.Containers {
		containers[part.Name], kinds[part.Resource] = true, true
		if part.Init {
			left++
		}
	}
	add := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	add(&c.several, len(containers) > 1)
	add(&c.init, left > 0)
	add(&c.exclusive, pod.Spec.Containers[0].Resources.Limits.Memory().Value() > 0)
	add(&c.spanning, len(a.NUMANodes) > 1)
	add(&c.twoKinds, len(kinds) > 1)
}

// TestKubeletPrediction sends random pods to random machines and compares our solver's verdict with
// kubelet's own managers: a pod that we bind is admitted and has exactly the devices that we chose.
func TestKubeletPrediction(t *testing.T) {
	if os.Getenv("SKIP_NODE") == "1" {
		t.Skip("SKIP_NODE=1")
	}
	// align-by-socket requires it.
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CPUManagerPolicyAlphaOptions, true)
	cases := predictNumber(t, casesEnv, defaultCases)
	seed := uint64(predictNumber(t, seedEnv, 46))
	p := &prediction{t: t, r: rand.New(rand.NewPCG(seed, 1)), rows: map[string]*tally{}, sched: newScheduler(t)}
	done := 0
	for machine := 0; done < cases && !t.Failed(); machine++ {
		done += p.machine(machine)
	}
	p.report()
}

// predictNumber reads a number from the environment.
func predictNumber(t *testing.T, key string, otherwise int) int {
	t.Helper()
	v := os.Getenv(key)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return n
}

// machine sends pods to one machine and returns the number of judged pods.
func (p *prediction) machine(number int) int {
	m := randomLayout(p.r)
	setup := randomSetup(p.r, m)
	unhealthy := map[string]bool{}
	for i := range m.numa[gpu] {
		if p.r.IntN(16) == 0 && len(m.numa[gpu]) > 2 {
			unhealthy[deviceID(gpu, i)] = true
		}
	}
	k := startWholeKubelet(p.t, m, setup, unhealthy)
	defer k.stop()
	p.sched.newNode(m, setup, number)
	row := p.rows[setup.String()]
	if row == nil {
		row = &tally{tooCareful: map[string]int{}}
		p.rows[setup.String()] = row
	}
	judged := 0
	for range perMachine {
		for len(p.sched.pods) > 0 && p.r.IntN(5) < 2 {
			p.leave(k, p.sched.pods[p.r.IntN(len(p.sched.pods))])
		}
		p.sched.publish(p.t, m, setup, k, unhealthy)
		// Sometimes a second pod is bound before kubelet has admitted the first.
		type bound struct {
			pod *v1.Pod
			a   *allocation.Allocation
		}
		var waiting []bound
		for together := 1 + p.r.IntN(5)/4; together > 0; together-- {
			p.next++
			pod := randomPod(p.r, p.next, m)
			p.demand(pod)
			a, reason, fit := p.sched.schedule(p.t, pod)
			switch {
			case !fit:
			case a != nil:
				judged++
				row.accepted++
				if waiting = append(waiting, bound{pod, a}); len(waiting) > 1 {
					p.covered.inFlight++
				}
			case len(waiting) == 0:
				judged++
				row.refused++
				p.refused(k, row, pod, reason, describeCase(m, setup, unhealthy))
				together = 0 // the agent first has to publish the result
			}
		}
		if len(waiting) == 2 && p.r.IntN(3) == 0 {
			// The second pod's binding overtook the first one's: the GPUs may differ then.
			p.covered.overtaken++
			for _, b := range []bound{waiting[1], waiting[0]} {
				p.overtaken(k, row, b.pod, b.a, describeCase(m, setup, unhealthy))
			}
			waiting = nil
		}
		for _, b := range waiting {
			p.bound(k, row, b.pod, b.a, describeCase(m, setup, unhealthy))
		}
		if p.t.Failed() {
			break
		}
	}
	return judged
}

// demand sometimes gives the pod a policy of its own.
func (p *prediction) demand(pod *v1.Pod) {
	pod.Annotations = map[string]string{}
	if p.r.IntN(10) == 0 {
		pod.Annotations[podrequest.TopologyPolicyKey] = []string{"restricted", "single-numa-node"}[p.r.IntN(2)]
	}
}

// bound lets kubelet admit a pod that our solver accepted.
func (p *prediction) bound(k *wholeKubelet, row *tally, pod *v1.Pod, a *allocation.Allocation, where string) {
	type served struct{ container, resource string }
	want := map[served][]string{}
	for _, c := range a.Containers {
		want[served{c.Name, c.Resource}] = slices.Sorted(slices.Values(c.GPUs))
	}
	k.prefer = func(container, name string, available, must []string, size int) []string {
		if w := want[served{container, name}]; len(w) == size && predictSubset(must, w) && predictSubset(w, available) {
			return w
		}
		// After kubelet's random choice: the rest of the pod's devices.
		return lowestOf(predictCommon(available, a.GPUs(name)), must, size)
	}
	if err := k.admit(pod); err != nil {
		row.boundButRefused++
		p.t.Errorf("kubelet refuses pod %s that was bound: %v\n%s\npod %s\nchoice %+v", pod.Name, err, where, describePod(pod), a.Containers)
		p.leave(k, pod)
		return
	}
	ok, chance := true, false
	for _, name := range []string{gpu, fpga} {
		var got []string
		diced := byChance(pod, v1.ResourceName(name))
		chance = chance || diced
		for _, c := range containersOf(pod) {
			ids := k.recorded(pod, c.Name, name)
			got = append(got, ids...)
			ok = ok && (diced || slices.Equal(ids, want[served{c.Name, name}]))
		}
		slices.Sort(got)
		ok = ok && slices.Equal(slices.Compact(got), slices.Sorted(slices.Values(a.GPUs(name))))
	}
	if chance {
		row.chance++
	}
	p.covered.count(pod, a)
	if !ok {
		row.notHonoured++
		p.t.Errorf("pod %s has other devices than chosen\n%s\npod %s\nchoice %+v", pod.Name, where, describePod(pod), a.Containers)
		for _, c := range containersOf(pod) {
			p.t.Logf("container %s: recorded %v and %v", c.Name, k.recorded(pod, c.Name, gpu), k.recorded(pod, c.Name, fpga))
		}
	}
	started := metav1.Now()
	pod.Status.StartTime = &started
}

// overtaken lets kubelet admit a pod in another order than ours: all are admitted, and the controller
// corrects the choices.
func (p *prediction) overtaken(k *wholeKubelet, row *tally, pod *v1.Pod, a *allocation.Allocation, where string) {
	k.prefer = func(container, name string, available, must []string, size int) []string {
		for _, c := range a.Containers {
			if c.Name == container && c.Resource == name && predictSubset(must, c.GPUs) && predictSubset(c.GPUs, available) {
				return c.GPUs
			}
		}
		return lowestOf(available, must, size)
	}
	if err := k.admit(pod); err != nil {
		row.boundButRefused++
		p.t.Errorf("kubelet refuses pod %s that was overtaken or overtook: %v\n%s\npod %s\nchoice %+v", pod.Name, err, where, describePod(pod), a.Containers)
		p.leave(k, pod)
		return
	}
	for i := range a.Containers {
		c := &a.Containers[i]
		c.GPUs = k.recorded(pod, c.Name, c.Resource)
	}
	text, err := a.Encode()
	if err != nil {
		p.t.Fatal(err)
	}
	pod.Annotations[allocation.Key] = text
	started := metav1.Now()
	pod.Status.StartTime = &started
}

// refused checks whether kubelet would have admitted a pod that our solver refused.
func (p *prediction) refused(k *wholeKubelet, row *tally, pod *v1.Pod, reason, where string) {
	k.prefer = func(_, _ string, available, must []string, size int) []string { return lowestOf(available, must, size) }
	if k.admit(pod) != nil {
		return
	}
	if pod.Annotations[podrequest.TopologyPolicyKey] != "" {
		row.ownPolicy++
	} else {
		if len(row.tooCareful) < 3 {
			p.t.Logf("refused although kubelet takes it: %s\n%s\npod %s", reason, where, describePod(pod))
		}
		row.tooCareful[reason]++
	}
	if p.r.IntN(2) == 0 {
		k.remove(pod)
		return
	}
	// It stays, as a pod of another scheduler.
	pod.Spec.NodeName = predictNode
	started := metav1.Now()
	pod.Status.StartTime = &started
	p.sched.pods = append(p.sched.pods, pod)
}

func (p *prediction) leave(k *wholeKubelet, pod *v1.Pod) {
	k.remove(pod)
	p.sched.pods = slices.DeleteFunc(p.sched.pods, func(o *v1.Pod) bool { return o.UID == pod.UID })
}

// byChance reports whether kubelet passes devices of init containers on at random: a container requests
// fewer than they left.
func byChance(pod *v1.Pod, name v1.ResourceName) bool {
	left := int64(0)
	for _, c := range containersOf(pod) {
		q := c.Resources.Limits[name]
		n := q.Value()
		if n == 0 {
			continue
		}
		if n < left {
			return true
		}
		left = 0
		if isInit(pod, c.Name) && c.RestartPolicy == nil {
			left = n
		}
	}
	return false
}

func isInit(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}

func predictSubset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(id string) bool { return !slices.Contains(b, id) })
}

func predictCommon(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(id string) bool { return !slices.Contains(b, id) })
}

func describeCase(m *machineLayout, setup *kubeletSetup, unhealthy map[string]bool) string {
	return fmt.Sprintf("machine: devices on nodes %v, sockets %v, %d CPUs, %d threads a core; kubelet %+v; broken %v",
		m.numa, m.sockets, m.cpus(), m.threads, *setup, slices.Sorted(maps.Keys(unhealthy)))
}

func describePod(pod *v1.Pod) string {
	var b strings.Builder
	for _, c := range containersOf(pod) {
		sidecar := ""
		if c.RestartPolicy != nil {
			sidecar = " (sidecar)"
		}
		fmt.Fprintf(&b, "\n  %s%s: gpu %s fpga %s cpu %s memory %s limits %d", c.Name, sidecar, c.Resources.Limits.Name(gpu, ""), c.Resources.Limits.Name(fpga, ""),
			c.Resources.Requests.Cpu(), c.Resources.Requests.Memory(), len(c.Resources.Limits))
	}
	return b.String()
}

func (p *prediction) report() {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kubelet\tcases\tbound\tbound but refused\tnot honoured\tsplit by chance\trefused\town policy\ttoo careful\t")
	total := tally{tooCareful: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(p.rows)) {
		row := p.rows[name]
		careful := 0
		for reason, n := range row.tooCareful {
			careful += n
			total.tooCareful[reason] += n
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, row.accepted+row.refused, row.accepted, row.boundButRefused,
			row.notHonoured, row.chance, row.refused, row.ownPolicy, careful)
		total.accepted += row.accepted
		total.refused += row.refused
		total.boundButRefused += row.boundButRefused
		total.notHonoured += row.notHonoured
	}
	_ = w.Flush()
	p.t.Logf("%d pods: %d bound, of them %d refused by kubelet and %d given other devices; %d refused\n%s",
		total.accepted+total.refused, total.accepted, total.boundButRefused, total.notHonoured, total.refused, b.String())
	p.t.Logf("of those bound: %+v", p.covered)
	for _, reason := range slices.SortedFunc(maps.Keys(total.tooCareful), func(a, b string) int {
		return cmp.Compare(total.tooCareful[b], total.tooCareful[a])
	}) {
		p.t.Logf("refused although kubelet takes it: %d × %q", total.tooCareful[reason], reason)
	}
	if total.accepted < (total.accepted+total.refused)/10 || total.refused == 0 {
		p.t.Errorf("%d bound, %d refused: the cases are one-sided", total.accepted, total.refused)
	}
}
