// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const (
	calmPoll = 500 * time.Millisecond
	// steady is the number of consecutive polls without pending work that make a calm.
	steady = 3
)

// calm waits until no work is pending, and fails with the pending work otherwise.
func (e *testEnv) calm(ctx context.Context, t *testing.T) {
	t.Helper()
	start := time.Now()
	var left string
	quiet := 0
	err := wait.PollUntilContextTimeout(ctx, calmPoll, patience, true, func(ctx context.Context) (bool, error) {
		now, err := e.toDo(ctx)
		if err != nil {
			now = err.Error()
		}
		if ctx.Err() == nil { // else the earlier text is more specific
			left = now
		}
		if now != "" {
			quiet = 0
			return false, nil
		}
		quiet++
		return quiet == steady, nil
	})
	if err != nil {
		e.fail("no calm within %v of the end of churn: %s", patience, left)
		return
	}
	e.note("calm after %.1f s", time.Since(start).Seconds())
	t.Logf("calm %.1f s after the end of churn", time.Since(start).Seconds())
}

// examined waits until the checker has examined the calm, with the state of a scheduler, and has no
// finding left that one moment cannot prove, such as an annotation that has yet to follow kubelet's
// record. A gang that is partly bound is for judgeGangs.
func (e *testEnv) examined(ctx context.Context) {
	runs, states := e.tally(checkerRuns), e.tally(statesChecked)
	var left string
	err := wait.PollUntilContextTimeout(ctx, calmPoll, patience, true, func(context.Context) (bool, error) {
		switch n := e.tally(checkerRuns) - runs; {
		case n < 2: // the first of them may have begun before the calm
			left = fmt.Sprintf("the checker ran %d times", n)
		case e.tally(statesChecked) == states:
			left = "no scheduler showed its state to the checker"
		default:
			e.mu.Lock()
			left = strings.Join(e.pending, "; ")
			e.mu.Unlock()
		}
		return left == "", nil
	})
	if err != nil && e.ctx.Err() == nil {
		e.fail("the checker is not done within %v of the calm: %s", patience, left)
	}
}

// toDo describes pending work, empty if there is none.
func (e *testEnv) toDo(ctx context.Context) (string, error) {
	list, err := e.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, b := range e.boxes {
		t := e.topology(b.name)
		switch {
		case !b.well():
			return b.name + " is not as it was made", nil
		case t == nil || len(t.Spec.GPUs) != b.now().Len():
			return "the graph of " + b.name + " is not published", nil
		}
		if late := b.kubelet.unrepaired(); len(late) > 0 {
			return "not repaired: " + strings.Join(late, ", "), nil
		}
	}
	if e.leader(ctx) == nil {
		return "nobody leads", nil
	}
	if blind := e.blind(); blind != "" {
		return blind, nil
	}
	free := e.freeSets(list.Items)
	for i := range list.Items {
		p := &list.Items[i]
		switch {
		case ended(p):
		case p.DeletionTimestamp != nil:
			return p.Name + " is terminating", nil
		case p.Spec.NodeName != "" && p.Status.Phase != v1.PodRunning:
			return p.Name + " does not run yet", nil
		case p.Spec.NodeName == "" && p.Labels[gangLabel] == "":
			if node, err := e.fitsOn(p, free); err != nil || node != "" {
				return fmt.Sprintf("pod %s (%d GPUs, %v) fits node %s; the scheduler says %q", p.Name, gpusOf(p), wishesOf(p), node, refusal(p)), err
			}
		}
	}
	if left, err := e.gangsToDo(ctx, list.Items, free); err != nil || left != "" {
		return left, err
	}
	return e.notDone(ctx)
}

// watched are the resources that a scheduler must watch to notice free capacity.
var watched = []string{"pods", "nodes", "nodegputopologies", "leases", "clustertopologies", "podgroups"}

// blind names a resource that a scheduler does not watch at the moment, empty for none. client-go waits
// for up to a minute before it restarts a watch that was cut several times.
func (e *testEnv) blind() string {
	for _, r := range e.schedulers {
		watches := r.proxy.Watches()
		for _, resource := range watched {
			if !slices.ContainsFunc(watches, func(x faults.Watch) bool { return x.Resource == resource }) {
				return r.name + " does not watch " + resource
			}
		}
	}
	return ""
}

// notDone describes an attempt to place a gang that continues, a reservation without an attempt, or a
// graph that a scheduler has yet to read because its node changed more often than the rate limit allows:
// until then the scheduler does not know of the node's additional GPUs.
func (e *testEnv) notDone(ctx context.Context) (string, error) {
	for _, r := range e.schedulers {
		d, err := check.ReadScheduler(ctx, e.debug, "https://"+r.debug)
		if err != nil {
			return "", err
		}
		if left := heldForNobody(d); left != "" {
			return r.name + ": " + left, nil
		}
		for i := range d.Nodes {
			if h := d.Nodes[i].HeldBack; h != nil {
				return fmt.Sprintf("%s holds back version %s of %s since %.1f s", r.name, h.ResourceVersion, d.Nodes[i].Name, time.Since(h.Since).Seconds()), nil
			}
		}
	}
	return "", nil
}

func wishesOf(p *v1.Pod) map[string]string { return p.Annotations }

// refusal returns the scheduler's message about a pod that does not fit, or an empty string.
func refusal(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// room is the free capacity of a node.
type room struct {
	graph *nvtopo.Graph
	free  nvtopo.Mask
	// unknown is the number of free GPUs that belong to pods without a choice.
	unknown int
}

// freeSets derives the free capacity of each node from pods and from kubelets' records.
func (e *testEnv) freeSets(pods []v1.Pod) map[string]*room {
	out := map[string]*room{}
	records := map[string]map[types.UID][]string{}
	for _, b := range e.boxes {
		g := b.now()
		out[b.name] = &room{graph: g, free: g.Healthy()}
		records[b.name] = map[types.UID][]string{}
		if b.agent {
			records[b.name] = b.kubelet.holding()
			for _, ids := range records[b.name] {
				held, _ := g.Positions(ids)
				out[b.name].free &^= held
			}
		}
	}
	for i := range pods {
		p := &pods[i]
		r := out[p.Spec.NodeName]
		if r == nil || ended(p) {
			continue
		}
		if a := choiceOf(p); a != nil {
			held, missing := r.graph.Positions(a.GPUs(string(gpuResource)))
			r.free &^= held
			if records[p.Spec.NodeName][p.UID] == nil {
				r.unknown += len(missing) // chosen just before the machine was replaced: it has others
			}
		} else if records[p.Spec.NodeName][p.UID] == nil {
			r.unknown += gpusOf(p)
		}
	}
	return out
}

// fitsOn returns a node with a set of free GPUs that a pod accepts, or none. CPU and memory are
// plentiful. On a node with pods known only by count, no link can be promised.
func (e *testEnv) fitsOn(p *v1.Pod, free map[string]*room) (string, error) {
	c, err := constraintOf(p)
	if err != nil {
		return "", err
	}
	k := gpusOf(p)
	for _, node := range sortedKeys(free) {
		r := free[node]
		if r.free.Len()-r.unknown < k || r.unknown > 0 && demanding(c) {
			continue
		}
		o := e.oracleOf(r.graph)
		if anySet(r.free, k, func(s nvtopo.Mask) bool { return o.Permits(s, c) }) {
			return node, nil
		}
	}
	return "", nil
}

// anySet reports whether ok accepts a subset of size k.
func anySet(f nvtopo.Mask, k int, ok func(nvtopo.Mask) bool) bool {
	var walk func(rest, taken nvtopo.Mask) bool
	walk = func(rest, taken nvtopo.Mask) bool {
		if taken.Len() == k {
			return ok(taken)
		}
		if rest.Len() < k-taken.Len() {
			return false
		}
		first := nvtopo.MaskOf(rest.First())
		return walk(rest&^first, taken|first) || walk(rest&^first, taken)
	}
	return walk(f, 0)
}

// clear deletes all pods and waits until they are gone from the API server and from every kubelet's
// record.
func (e *testEnv) clear(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := e.endGangs(ctx); err != nil {
		e.fail("%v", err)
		return
	}
	err := e.try(ctx, "delete all pods", func(ctx context.Context) error {
		return e.kube.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	var left string
	if err == nil {
		err = wait.PollUntilContextTimeout(ctx, calmPoll, patience, true, func(ctx context.Context) (bool, error) {
			list, err := e.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			what := []string{fmt.Sprintf("%d pods", len(list.Items))}
			for _, b := range e.boxes {
				if n := len(b.kubelet.holding()); n > 0 {
					what = append(what, fmt.Sprintf("%s holds devices of %d", b.name, n))
				}
				if r := e.topology(b.name); r != nil && len(r.Status.Allocations) > 0 {
					what = append(what, fmt.Sprintf("%s publishes %d allocations", b.name, len(r.Status.Allocations)))
				}
			}
			left = strings.Join(what, ", ")
			return left == "0 pods", nil
		})
	}
	if err != nil {
		e.violate("after everything was deleted there is left: %s: %v", left, err)
	}
}
