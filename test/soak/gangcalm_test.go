// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// gangsToDo describes a gang with waiting members that have room, or with missing pods. Members have no
// requirements on links, so a node's room for them is a number.
func (e *testEnv) gangsToDo(ctx context.Context, pods []v1.Pod, free map[string]*room) (string, error) {
	all := e.gangs.list()
	if len(all) == 0 {
		return "", nil
	}
	nodes, err := e.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	of := map[string][]v1.Pod{}
	for i := range pods {
		if name := pods[i].Labels[gangLabel]; name != "" {
			of[name] = append(of[name], pods[i])
		}
	}
	for _, g := range all {
		if left := g.toDo(standing(of[g.name]), nodes.Items, free); left != "" {
			return left, nil
		}
	}
	return "", nil
}

// toDo describes the pending work of a gang, empty if there is none.
func (g *gang) toDo(s state, nodes []v1.Node, free map[string]*room) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	have := len(s.bound) + s.done
	if have+len(s.waiting) < g.want.Members {
		return fmt.Sprintf("gang %s has %d of %d members", g.name, have+len(s.waiting), g.want.Members)
	}
	wish := &gangWishes[g.want.Wish]
	need := max(g.want.Minimum-have, min(len(s.waiting), 1)) // those above the minimum are placed one by one
	if need == 0 || wish.loose {
		return ""
	}
	for domain, names := range domains(nodes, wish.required) {
		here := 0
		for _, p := range s.bound {
			if slices.Contains(names, p.Spec.NodeName) {
				here++
			}
		}
		if slots := g.slots(names, free, len(s.bound) == 0); here == len(s.bound) && slots >= need {
			return fmt.Sprintf("gang %s (%+v) has %d of %d members bound and needs %d more, and there is room for %d in %q; the scheduler says %q",
				g.name, g.want, have, g.want.Minimum, need, slots, domain, refusal(s.waiting[0]))
		}
	}
	return ""
}

// slots returns how many members fit on nodes. Members of a gang that begins get GPUs of one model;
// others have waited long enough for their gang's model at a calm.
func (g *gang) slots(nodes []string, free map[string]*room, begins bool) (most int) {
	onModel := map[string]int{}
	for _, name := range nodes {
		r := free[name]
		if r == nil {
			continue
		}
		model := ""
		if begins {
			model = r.graph.Model()
		}
		onModel[model] += max(r.free.Len()-r.unknown, 0) / g.want.GPUs
		most = max(most, onModel[model])
	}
	return most
}

// TestSlots checks that free GPUs of several models are room for a gang with running members.
func TestSlots(t *testing.T) {
	free := map[string]*room{}
	for name, kind := range map[string]string{"a": "dgx1-v100", "b": "dgx1-v100", "c": "hgx-h200"} {
		m, err := machine.Lookup(kind)
		if err != nil {
			t.Fatal(err)
		}
		graph, err := m.GraphFor(name)
		if err != nil {
			t.Fatal(err)
		}
		free[name] = &room{graph: graph, free: graph.Healthy()}
	}
	g := &gang{want: gangPlan{GPUs: 4}}
	for begins, want := range map[bool]int{true: 4, false: 6} {
		if got := g.slots([]string{"a", "b", "c"}, free, begins); got != want {
			t.Errorf("room for %d members, want %d (the gang begins: %t)", got, want, begins)
		}
	}
}

// judgeGangs counts the states of gangs at a calm, and fails if one is cut without a cause that explains
// it.
func (e *testEnv) judgeGangs(ctx context.Context) {
	for _, g := range e.gangs.list() {
		asked := time.Now()
		pods, err := e.members(ctx, g)
		if err != nil {
			e.fail("%v", err)
			return
		}
		e.judge(ctx, g, standing(pods), asked)
	}
}

func (e *testEnv) judge(ctx context.Context, g *gang, s state, asked time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.look(g, s, asked)
	have := len(s.bound) + s.done
	switch {
	case have >= g.want.Minimum:
		e.count("gangs at a calm: whole", 1)
		e.judgeState(ctx, g)
	case len(s.bound) == 0:
		e.count("gangs at a calm: waiting, nothing bound", 1)
	case g.whole:
		e.count("gangs at a calm: were whole, no room for a member that was replaced", 1)
	default:
		why := e.cutBy(g)
		if why == "" {
			e.violate("gang %s (%+v) has %d of %d members bound at a calm, and was never whole", g.name, g.want, have, g.want.Minimum)
			return
		}
		e.count("gangs at a calm: cut by "+why, 1)
	}
}

// judgeState fails if a whole gang is not recorded as whole: it could be rolled back while it runs.
func (e *testEnv) judgeState(ctx context.Context, g *gang) {
	if !g.want.Group {
		return
	}
	err := e.try(ctx, "read PodGroup "+g.name, func(ctx context.Context) error {
		u, err := e.dyn.Resource(groupResource).Namespace(namespace).Get(ctx, g.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if v := u.GetAnnotations()[gangrequest.StateKey]; v != "" {
			if state, err := gangrequest.ParseState(v); err != nil || !state.Whole {
				e.count("gangs at a calm: whole, and their PodGroup does not say so", 1)
				e.mark("gang %s is whole, and says %s", g.name, v)
			}
		}
		return nil
	})
	if err != nil {
		e.fail("%v", err)
	}
}

// attempts records how long members wait for an attempt that has ended. A member that waits for good is
// found at the calm, see heldForNobody.
func (c *checker) attempts(states []diagnosis.State) {
	for i := range states {
		for _, g := range states[i].Gangs {
			a := g.Attempt
			if a == nil || a.Phase != "ending" || len(a.Waiting)+len(a.Reserved) == 0 {
				continue
			}
			lasted := states[i].At.Sub(a.Since)
			if c.w.pausedLately() {
				continue
			}
			c.w.longest("gangs: longest wait for an attempt that has ended, ms", lasted)
		}
	}
}

// heldForNobody describes an attempt that continues, or a planned place without one.
func heldForNobody(d *diagnosis.State) string {
	for _, g := range d.Gangs {
		if a := g.Attempt; a != nil {
			return fmt.Sprintf("the attempt of %s is %s since %.1f s, of %d members held, %d reserved, %d waiting",
				g.Gang, a.Phase, d.At.Sub(a.Since).Seconds(), len(a.Held), len(a.Reserved), len(a.Waiting))
		}
	}
	for _, c := range d.Claims {
		if c.Phase == "planned" || c.Phase == diagnosis.Awaiting {
			return fmt.Sprintf("%s on %s is %s since %.1f s, and nobody tries to place its gang", c.Pod, c.Node, c.Phase, d.At.Sub(c.Since).Seconds())
		}
	}
	return ""
}

// forgotten names the gangs without pods that a scheduler still keeps.
func (e *testEnv) forgotten(ctx context.Context) string {
	for _, r := range e.schedulers {
		d, err := check.ReadScheduler(ctx, e.debug, "https://"+r.debug)
		if err != nil {
			return r.name + ": " + err.Error()
		}
		if len(d.Gangs) > 0 {
			return fmt.Sprintf("%s knows %d gangs with no pod left, such as %+v", r.name, len(d.Gangs), d.Gangs[0])
		}
	}
	return ""
}
