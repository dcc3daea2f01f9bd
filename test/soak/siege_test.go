// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

const (
	// promptly is how long a pod that fits may wait beside a hostile tenant, see served.
	promptly = 10 * time.Second
	// Between shortSiege and longSiege a siege takes an eighth of the churn before it.
	shortSiege, longSiege = 10 * time.Second, 45 * time.Second
	// probes is the number of pods that exist at a time, and fewestProbes the least number of a siege.
	probes, fewestProbes = 6, 5
	siegePoll            = 250 * time.Millisecond
)

// besiege creates pods of a tenant one after the other while the hostile tenant attacks without other
// faults, and fails if one that fits waits.
func (e *testEnv) besiege(ctx context.Context, length time.Duration) {
	if e.hostile == nil {
		return
	}
	stop := e.attack(burstInSiege)
	defer func() {
		stop()
		e.expel(ctx)
	}()
	start := time.Now()
	for n := 0; n < fewestProbes || time.Since(start) < min(max(length/8, shortSiege), longSiege); n++ {
		o := &op{Pod: probe(n), Want: podPlan{GPUs: []int{1 + n%2}, Profile: n % len(profiles)}}
		if err := e.create(ctx, o); err != nil {
			e.fail("%v", err)
			return
		}
		if !e.served(ctx, o.Pod) {
			return
		}
		e.count("siege: pods bound beside a hostile tenant", 1)
		if n < probes {
			continue
		}
		err := e.try(ctx, "delete "+probe(n-probes), func(ctx context.Context) error {
			return gone(e.kube.CoreV1().Pods(namespace).Delete(ctx, probe(n-probes), metav1.DeleteOptions{}))
		})
		if err != nil {
			e.fail("%v", err)
			return
		}
	}
}

func probe(n int) string { return fmt.Sprintf("probe-%04d", n) }

// served waits until a pod is bound or gone, and fails if it waits for promptly while a scheduler leads
// and it fits.
//
// It fits if in each observation it fitted the same nodes, decided by the brute force of the calm from
// all pods, kubelets' records and Nodes, and no pod was bound there meanwhile; and these are more nodes
// than may be closed: on half of them places may be kept for gangs of one namespace, and a gang in
// progress may hold a few.
//
// The waiting time is measured by the machine's free capacity: the time on the clock less the time for
// which some process waited for a CPU, as the kernel reports it, or the CPU time of the leader, whichever
// is more. So on an overloaded machine a pod may wait for longer, until patience ends, but a scheduler
// that computes for ten seconds for others, or leaves the pod alone on an idle machine, fails. Delays in
// the API server itself are not seen here: make bench-admission is for that.
func (e *testEnv) served(ctx context.Context, name string) bool {
	start := time.Now()
	var w *window
	for pause(ctx, siegePoll) {
		list, err := e.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		i := slices.IndexFunc(list.Items, func(p v1.Pod) bool { return p.Namespace == namespace && p.Name == name })
		if i < 0 || list.Items[i].Spec.NodeName != "" {
			e.longest("siege: longest wait, ms", time.Since(start))
			if w != nil {
				e.longest("siege: longest wait on a machine that had time, ms", w.counted)
			}
			return true
		}
		p := &list.Items[i]
		look, err := e.lookAt(ctx, p, list.Items)
		if err != nil {
			continue // the API server or the leader did not answer
		}
		w = w.next(look)
		switch {
		case w.counted >= promptly:
			e.violate("pod %s has waited for %.1f s (%.1f s on the clock) beside a hostile tenant, and fits %d nodes, such as %s; the scheduler says %q%s",
				p.Name, w.counted.Seconds(), time.Since(w.first.at).Seconds(), len(w.nodes), sortedKeys(w.nodes)[0], refusal(p), e.beliefs(ctx, sortedKeys(w.nodes)[0]))
			return false
		case time.Since(start) > patience:
			e.fail("pod %s was not bound within %v beside a hostile tenant; it fits %d nodes; the scheduler says %q", p.Name, patience, len(look.fits), refusal(p))
			return false
		}
	}
	return false
}

// look is one observation of a waiting pod.
type look struct {
	at      time.Time
	leader  int                           // process id; 0: no leader
	cpu     time.Duration                 // CPU time of the leader so far
	stalled time.Duration                 // for which some process on this machine waited for a CPU
	fits    map[string]bool               // nodes
	bound   map[string]map[types.UID]bool // node -> pods
}

// window is a time in which a pod fits the same nodes.
type window struct {
	first   *look
	nodes   map[string]bool
	counted time.Duration
}

// next continues a window, or begins one if there is no leader, another process leads, or too few nodes
// are left.
func (w *window) next(l *look) *window {
	if w != nil && l.leader == w.first.leader {
		nodes := map[string]bool{}
		for node := range w.nodes {
			if l.fits[node] && !more(l.bound[node], w.first.bound[node]) {
				nodes[node] = true
			}
		}
		if enough(len(nodes)) && l.leader != 0 {
			return &window{first: w.first, nodes: nodes, counted: max(l.cpu-w.first.cpu, l.at.Sub(w.first.at)-(l.stalled-w.first.stalled))}
		}
	}
	return &window{first: l, nodes: l.fits}
}

// enough reports whether a number of nodes is more than may be closed for a while.
func enough(nodes int) bool { return nodes >= defaultNodes/2+3 }

// more reports whether now has a pod that before lacks.
func more(now, before map[types.UID]bool) bool {
	for uid := range now {
		if !before[uid] {
			return true
		}
	}
	return false
}

// lookAt observes a waiting pod.
func (e *testEnv) lookAt(ctx context.Context, p *v1.Pod, pods []v1.Pod) (*look, error) {
	l := &look{fits: map[string]bool{}, bound: map[string]map[types.UID]bool{}}
	nodes, err := e.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	free := e.freeSets(pods)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		l.bound[n.Name] = map[types.UID]bool{}
		var on []*v1.Pod
		for k := range pods {
			if pods[k].Spec.NodeName == n.Name {
				l.bound[n.Name][pods[k].UID] = true
				on = append(on, &pods[k])
			}
		}
		if free[n.Name] == nil || n.Spec.Unschedulable || len(n.Spec.Taints) > 0 || !holds(n, on, p) {
			continue
		}
		node, err := e.fitsOn(p, map[string]*room{n.Name: free[n.Name]})
		if err != nil {
			return nil, err
		}
		if node != "" {
			l.fits[n.Name] = true
		}
	}
	if r := e.leader(ctx); r != nil {
		m, err := r.metrics(ctx)
		if err != nil {
			return nil, err
		}
		l.leader, l.cpu = r.sched.PID(), time.Duration(m["process_cpu_seconds_total"]*float64(time.Second))
	}
	l.at, l.stalled = time.Now(), stalled()
	return l, nil
}

// holds reports whether a node has CPU, memory and a place for one more pod.
func holds(n *v1.Node, on []*v1.Pod, p *v1.Pod) bool {
	sum := v1.ResourceList{}
	for _, x := range append(slices.Clone(on), p) {
		for name, q := range resourcehelper.PodRequests(x, resourcehelper.PodResourcesOptions{}) {
			had := sum[name]
			had.Add(q)
			sum[name] = had
		}
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		has := n.Status.Allocatable[name]
		if has.Cmp(sum[name]) < 0 {
			return false
		}
	}
	places := n.Status.Allocatable[v1.ResourcePods]
	return places.Value() > int64(len(on))
}

// stalled returns for how long so far some process on this machine waited for a CPU. If the kernel does
// not report it, all time is returned: then only the leader's CPU time is used.
func stalled() time.Duration {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return time.Since(processStart)
	}
	total := stalledOf(string(text))
	if total < 0 {
		return time.Since(processStart)
	}
	return total
}

var processStart = time.Now()

// stalledOf parses the kernel's file; -1 if it cannot be read.
func stalledOf(text string) time.Duration {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "some" {
			continue
		}
		micros, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "total="), 10, 64)
		if err == nil {
			return time.Duration(micros) * time.Microsecond
		}
	}
	return -1
}

// TestSiegeWindow checks which time is taken as waiting.
func TestSiegeWindow(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	const all = 14
	see := func(seconds, cpu, stalled float64, fits int, more ...types.UID) *look {
		l := &look{at: at.Add(time.Duration(seconds * float64(time.Second))), leader: 1, fits: map[string]bool{}, bound: map[string]map[types.UID]bool{}}
		l.cpu, l.stalled = time.Duration(cpu*float64(time.Second)), time.Duration(stalled*float64(time.Second))
		for i := range fits {
			l.fits[strconv.Itoa(i)] = true
		}
		for i, uid := range more {
			l.bound[strconv.Itoa(i)] = map[types.UID]bool{uid: true}
		}
		return l
	}
	other := see(20, 0, 0, all)
	other.leader = 2
	nobody := see(20, 0, 0, all)
	nobody.leader = 0
	for name, tc := range map[string]struct {
		later *look
		want  time.Duration
	}{
		"a machine with time":                        {see(20, 0, 0, all), 20 * time.Second},
		"a machine without time":                     {see(20, 1, 20, all), time.Second},
		"a machine with some time":                   {see(20, 1, 15, all), 5 * time.Second},
		"a leader that computes":                     {see(20, 12, 20, all), 12 * time.Second},
		"another leader":                             {other, 0},
		"nobody leads":                               {nobody, 0},
		"few nodes are left":                         {see(20, 0, 0, all/2), 0},
		"somebody was bound on some":                 {see(20, 0, 0, all, "a", "b"), 20 * time.Second},
		"somebody was bound where it fitted on most": {see(20, 0, 0, all, "a", "b", "c", "d", "e", "f"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var w *window
			if got := w.next(see(0, 0, 0, all)).next(tc.later); got.counted != tc.want {
				t.Errorf("counted %v, want %v", got.counted, tc.want)
			}
		})
	}
	if got := stalledOf("some avg10=88.23 avg60=88.64 avg300=63.54 total=8973372\nfull avg10=0.00 total=0\n"); got != 8973372*time.Microsecond {
		t.Errorf("stalled for %v", got)
	}
	if got := stalledOf("nothing"); got != -1 {
		t.Errorf("stalled for %v where the file says nothing", got)
	}
}
