// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	gangLabel = "soak/gang"
	// tendEvery is how often the controller of gangs looks for missing members.
	tendEvery = time.Second
)

var groupResource = schedulingv1alpha1.SchemeGroupVersion.WithResource("podgroups")

// gangs are the existing gangs, by name.
type gangs struct {
	mu  sync.Mutex
	all map[string]*gang
}

// gang is one gang with its observed state.
type gang struct {
	name string

	mu       sync.Mutex
	want     gangPlan              // its present request; guarded by mu
	owner    metav1.OwnerReference // of its members, as a Job would be; guarded by mu
	over     bool                  // it is being deleted; guarded by mu
	lives    map[int]int           // index -> number of its pods so far; guarded by mu
	whole    bool                  // it was, once; guarded by mu
	replaced bool                  // a pod was created in place of another; guarded by mu
	part     time.Time             // start of the time in which it is partly bound and was never whole; guarded by mu
	cut      string                // another cause that may leave it partly bound: its PodGroup was edited, or another gang had its name; guarded by mu
}

func (s *gangs) get(name string) *gang {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[name]
}

func (s *gangs) list() []*gang {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*gang
	for _, name := range sortedKeys(s.all) {
		out = append(out, s.all[name])
	}
	return out
}

func (s *gangs) set(g *gang) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*gang{}
	}
	s.all[g.name] = g
}

func (s *gangs) drop(name string) {
	s.mu.Lock()
	delete(s.all, name)
	s.mu.Unlock()
}

// gangOp reports whether the operation had an object.
func (e *testEnv) gangOp(ctx context.Context, o *op) (bool, error) {
	if o.Kind == opGangCreate {
		g := &gang{name: o.Pod, want: o.Gang, lives: map[int]int{}}
		e.gangs.set(g)
		e.count("gangs created", 1)
		return true, e.createGang(ctx, g, o)
	}
	g := e.gangs.get(o.Pod)
	if g == nil {
		return false, nil
	}
	switch o.Kind { //nolint:exhaustive // operations on gangs that are there
	case opGangDelete:
		return true, e.deleteGang(ctx, g, graceSeconds)
	case opGangRecreate:
		return true, e.recreateGang(ctx, g, o)
	case opGangEdit:
		return e.editGang(ctx, g, &o.Edit)
	case opGangKill:
		return e.killMember(ctx, g, o.Draw, false)
	case opGangKillBound:
		return e.killMember(ctx, g, o.Draw, true)
	}
	return false, fmt.Errorf("unknown operation %s", o.Kind)
}

// createGang creates the members in a random order, and the PodGroup before or after them. A gang that
// collects has its PodGroup edited when half of the members exist.
func (e *testEnv) createGang(ctx context.Context, g *gang, o *op) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := e.makeOwner(ctx, g); err != nil {
		return err
	}
	late := g.want.Late && !g.want.Collects
	if g.want.Group && !late {
		if err := e.makeGroup(ctx, g); err != nil {
			return err
		}
	}
	for i, index := range rand.New(rand.NewPCG(o.Draw, 0)).Perm(g.want.Members) {
		if g.want.Collects && i == g.want.Members/2 {
			e.lapse(ctx, o.Lag)
			if err := e.editGroup(ctx, g, &o.Edit); err != nil {
				return err
			}
			e.count("gangs edited while members collect", 1)
		}
		if err := e.makeMember(ctx, g, index); err != nil {
			return err
		}
	}
	if g.want.Group && late {
		return e.makeGroup(ctx, g)
	}
	return nil
}

// members lists the pods of a gang.
func (e *testEnv) members(ctx context.Context, g *gang) (pods []v1.Pod, err error) {
	err = e.try(ctx, "list the members of "+g.name, func(ctx context.Context) error {
		list, err := e.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: gangLabel + "=" + g.name})
		if err == nil {
			pods = list.Items
		}
		return err
	})
	return pods, err
}

func (e *testEnv) deleteGang(ctx context.Context, g *gang, grace int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	e.gangs.drop(g.name)
	pods, err := e.members(ctx, g)
	if err != nil {
		return err
	}
	for i := range pods {
		if err := e.remove(ctx, &pods[i], grace); err != nil {
			return err
		}
	}
	return e.deleteObjects(ctx, g)
}

// deleteObjects deletes a gang's objects beside its pods. It needs g.mu.
func (e *testEnv) deleteObjects(ctx context.Context, g *gang) error {
	err := e.try(ctx, "delete ConfigMap "+g.name, func(ctx context.Context) error {
		return gone(e.kube.CoreV1().ConfigMaps(namespace).Delete(ctx, g.name, metav1.DeleteOptions{}))
	})
	if err != nil || !g.want.Group {
		return err
	}
	return e.try(ctx, "delete PodGroup "+g.name, func(ctx context.Context) error {
		return gone(e.dyn.Resource(groupResource).Namespace(namespace).Delete(ctx, g.name, metav1.DeleteOptions{}))
	})
}

// killMember ends one live member, one with a node if bound is set: it is deleted, or by force with the
// same name recreated at once, or fails, or is evicted, or finishes.
func (e *testEnv) killMember(ctx context.Context, g *gang, draw uint64, bound bool) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pods, err := e.members(ctx, g)
	if err != nil {
		return false, err
	}
	var live []*v1.Pod
	for i := range pods {
		if p := &pods[i]; p.DeletionTimestamp == nil && !ended(p) && (!bound || p.Spec.NodeName != "") {
			live = append(live, p)
		}
	}
	if len(live) == 0 {
		return false, nil
	}
	p := live[draw%uint64(len(live))]
	switch draw / 16 % 5 {
	case 0:
		return true, e.remove(ctx, p, graceSeconds)
	case 1:
		if err := e.remove(ctx, p, 0); err != nil {
			return false, err
		}
		g.replaced = true
		e.count("gang members replaced", 1)
		return true, e.makePod(ctx, memberOf(g, indexOf(p), p.Name))
	case 2:
		return true, e.setPhase(ctx, p, v1.PodFailed, "SoakFailed")
	case 3:
		return true, e.evict(ctx, p)
	}
	if p.Spec.NodeName == "" {
		return false, nil // it has not begun
	}
	return true, e.finish(ctx, p)
}

// tendGangs is the controller of gangs: it creates a pod for each index without one, as a Job does. It
// also observes the state of each gang.
func (e *testEnv) tendGangs(ctx context.Context) error {
	for pause(ctx, tendEvery) {
		for _, g := range e.gangs.list() {
			if err := e.tend(ctx, g); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

func (e *testEnv) tend(ctx context.Context, g *gang) error {
	if !g.mu.TryLock() {
		return nil // another operation on it is in progress
	}
	defer g.mu.Unlock()
	if g.over {
		return nil
	}
	asked := time.Now()
	pods, err := e.members(ctx, g)
	if err != nil {
		return err
	}
	has := map[int]bool{}
	for i := range pods {
		if p := &pods[i]; p.DeletionTimestamp == nil && p.Status.Phase != v1.PodFailed {
			has[indexOf(p)] = true
		}
	}
	for index := range g.want.Members {
		if !has[index] {
			g.replaced = true
			e.count("gang members replaced", 1)
			if err := e.makeMember(ctx, g, index); err != nil {
				return err
			}
		}
	}
	e.look(g, standing(pods), asked)
	return nil
}

// state is the progress of a gang.
type state struct {
	bound, waiting []*v1.Pod // live members
	done           int       // members that succeeded
}

func standing(pods []v1.Pod) (s state) {
	for i := range pods {
		switch p := &pods[i]; {
		case p.DeletionTimestamp != nil || p.Status.Phase == v1.PodFailed:
		case p.Status.Phase == v1.PodSucceeded:
			s.done++
		case p.Spec.NodeName != "":
			s.bound = append(s.bound, p)
		default:
			s.waiting = append(s.waiting, p)
		}
	}
	return s
}

// look records that a gang is whole, or how long one is partly bound that was never whole. asked is the
// time at which its pods were listed. It needs g.mu.
func (e *testEnv) look(g *gang, s state, asked time.Time) {
	switch {
	case len(s.bound)+s.done >= g.want.Minimum:
		if len(s.bound) >= g.want.Minimum {
			e.past.whole(g.owner.UID, asked)
		}
		if !g.whole {
			e.count("gangs whole", 1)
		}
		g.whole, g.part = true, time.Time{}
	case g.whole:
	case len(s.bound) == 0:
		g.part = time.Time{}
	case g.part.IsZero():
		g.part = time.Now()
	}
	if !g.part.IsZero() {
		e.longest("gangs: longest time partly bound and never whole before, ms", time.Since(g.part))
	}
}

// longest keeps the maximum of a duration, in milliseconds.
func (e *testEnv) longest(what string, d time.Duration) {
	e.mu.Lock()
	e.counts[what] = max(e.counts[what], int(d.Milliseconds()))
	e.mu.Unlock()
}

// disturb records an event that may cut a gang that is being bound.
func (e *testEnv) disturb(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.disturbance = what
}

// cutBy returns the cause that may have cut a gang that is partly bound and never was whole, or "": the
// end of one of its members, or a disturbance since the last calm, before which there was no gang. The
// time since then does not matter, as a slow machine binds a gang slowly. It needs g.mu.
func (e *testEnv) cutBy(g *gang) string {
	switch {
	case g.replaced:
		return "the end of a member"
	case g.cut != "":
		return g.cut
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.disturbance
}

// endGangs stops the creation of members, and deletes the PodGroups.
func (e *testEnv) endGangs(ctx context.Context) error {
	for _, g := range e.gangs.list() {
		g.mu.Lock()
		g.over = true
		g.mu.Unlock()
		e.gangs.drop(g.name)
	}
	return e.try(ctx, "delete all PodGroups", func(ctx context.Context) error {
		return e.dyn.Resource(groupResource).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
}
