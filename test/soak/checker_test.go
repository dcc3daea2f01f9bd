// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/controller"
)

const (
	// checkEvery is the time between two runs of the checker.
	checkEvery = time.Second
	// repairTime is how long two annotations may name one GPU after kubelet gave one of the pods other
	// devices, or after a leader was paused, and how long an annotation may differ from kubelet's record
	// while a leader may correct it; and how long any finding may last that one check cannot prove. At a
	// calm there are none, see examined.
	repairTime = patience
	// hearing is the time within which a scheduler must have received a change: client-go waits for up to a
	// minute before it restarts a watch that was cut several times, and the machine may be slow.
	hearing = 2 * time.Minute
	// readTime bounds one reading of the cluster, which takes many requests.
	readTime = time.Minute
	// silence is the age of the Lease's last renewal, due every 2 s, from which on its holder may be dead.
	silence = 6 * time.Second
)

// The checker's counters.
const (
	checkerTries  = "checker tries"
	checkerRuns   = "checker runs"
	statesChecked = "scheduler states checked"
)

// checker runs package check throughout. A finding ends the run, except annotations that share a GPU
// while kubelet's record does not: those are explained by a pod that kubelet gave other devices, or by a
// paused leader, and must be repaired in time.
type checker struct {
	w     *testEnv
	kube  kubernetes.Interface
	inner *check.Checker
	since map[string]time.Time // shared annotations -> first seen

	repairer string    // holder of the controller's Lease, which may correct annotations
	begun    time.Time // start of the time for which it has held it without a gap
}

// newChecker makes an account with only the role that is shipped for the checker.
func newChecker(t *testing.T, w *testEnv) *checker {
	t.Helper()
	const name = "soak-checker"
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := w.kube.CoreV1().ServiceAccounts(systemNamespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nvtopo-checker"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: systemNamespace}},
	}
	if _, err := w.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg, err := w.cluster.ServiceAccountConfig(t.Context(), systemNamespace, name)
	if err != nil {
		t.Fatal(err)
	}
	own := rest.CopyConfig(cfg)
	own.Insecure, own.CAData, own.Timeout = true, nil, askTime // the schedulers sign their own certificates
	debug, err := rest.HTTPClientFor(own)
	if err != nil {
		t.Fatal(err)
	}
	w.debug = debug
	return &checker{
		w: w, kube: kubernetes.NewForConfigOrDie(cfg),
		inner: check.NewChecker(repairTime), since: map[string]time.Time{},
	}
}

// run examines the cluster until the context ends.
func (c *checker) run(ctx context.Context) error {
	for pause(ctx, checkEvery) {
		c.w.count(checkerTries, 1)
		if err := c.once(ctx); err != nil {
			c.w.count("checker could not read", 1) // the API server is down, or has not loaded the rights yet
			continue
		}
		c.w.count(checkerRuns, 1)
	}
	return nil
}

func (c *checker) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	world, err := check.Read(ctx, c.kube, systemNamespace)
	if err != nil {
		return err
	}
	world.Lag, world.ScheduleTimeout = hearing, new(scheduleTimeout)
	for _, p := range profiles {
		world.Profiles = append(world.Profiles, diagnosis.Profile{Name: p, Resources: []string{string(gpuResource)}})
	}
	for _, r := range c.w.schedulers {
		// A dead or paused one shows no state; its pending findings start over.
		if d, err := check.ReadScheduler(ctx, c.w.debug, "https://"+r.debug); err == nil {
			world.Schedulers = append(world.Schedulers, *d)
		}
	}
	c.attempts(world.Schedulers)
	c.watchRepairer(ctx)
	report := c.inner.Examine(world)
	c.w.count(statesChecked, report.Checked.Schedulers)
	c.w.count("claims checked", report.Checked.Claims)
	c.w.count("allocations checked", report.Checked.Allocations)
	c.w.count("gangs checked", report.Checked.Gangs)
	c.w.count("records checked", report.Checked.Records)
	c.w.count("findings that explain themselves", len(report.Notes))
	c.w.count("findings pending", len(report.Pending))
	shared := map[string]time.Time{}
	for i := range report.Violations {
		v := &report.Violations[i]
		switch {
		case ofItself(v):
			c.w.count("hostile: findings about its own gangs", 1)
		case v.Invariant == check.SharedByAnnotation:
			c.share(v, shared)
		case v.Invariant == check.RecordDiffers && time.Since(c.begun) <= repairTime:
			c.w.count("records that waited for somebody to lead", 1)
		default:
			c.w.violate("%s", v)
		}
	}
	c.since = shared
	pending := slices.Sorted(maps.Keys(shared))
	for i := range report.Pending {
		if v := &report.Pending[i]; v.Invariant != check.GangPartlyBound && !ofItself(v) {
			pending = append(pending, v.String())
		}
	}
	c.w.mu.Lock()
	c.w.pending = pending
	c.w.mu.Unlock()
	return nil
}

// watchRepairer follows the holder of the controller's Lease, and how long it has held it.
func (c *checker) watchRepairer(ctx context.Context) {
	l, err := c.w.kube.CoordinationV1().Leases(systemNamespace).Get(ctx, controller.LeaseName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return // the API server is down, and the holder may be alive
	}
	holder := ""
	if err == nil && l.Spec.RenewTime != nil && time.Since(l.Spec.RenewTime.Time) < silence {
		holder = ptr.Deref(l.Spec.HolderIdentity, "")
	}
	if holder == "" || holder != c.repairer {
		c.repairer, c.begun = holder, time.Now()
	}
}

// share judges annotations that name one GPU twice.
func (c *checker) share(v *check.Violation, shared map[string]time.Time) {
	key := v.String()
	first, again := c.since[key]
	if !again {
		first = time.Now()
	}
	shared[key] = first
	why := c.w.excuse(v)
	switch {
	case why == "":
		c.w.violate("%s; chosen at %s", v, strings.Join(c.w.chosenAt(v), " and "))
	case time.Since(first) > repairTime && time.Since(c.begun) > repairTime:
		c.w.violate("not repaired within %v: %s", repairTime, v)
	case !again:
		c.w.mark("annotations share: %s: %s; chosen at %s", why, v, strings.Join(c.w.chosenAt(v), " and "))
		c.w.count("annotations that shared a GPU: "+why, 1)
	}
}

// chosenAt returns when the choices of a finding's pods were made, on the run's clock.
func (e *testEnv) chosenAt(v *check.Violation) []string {
	var out []string
	for _, o := range v.Objects {
		if o.Kind != "Pod" {
			continue
		}
		for _, obj := range e.pods.GetStore().List() {
			if p, ok := obj.(*v1.Pod); ok && p.UID == o.UID {
				if a := choiceOf(p); a != nil {
					out = append(out, fmt.Sprintf("%.3f (%s)", a.Assumed.Sub(e.start).Seconds(), p.Name))
				}
			}
		}
	}
	return out
}

// excuse returns why two annotations may temporarily share a GPU; empty if they may not.
func (e *testEnv) excuse(v *check.Violation) string {
	for _, o := range v.Objects {
		if o.Kind != "Pod" {
			continue
		}
		for _, b := range e.boxes {
			if b.kubelet.gaveOther(o.UID) {
				return "kubelet gave a pod others"
			}
		}
	}
	if e.pausedLately() {
		return "a leader was paused"
	}
	return ""
}

// gaveOther reports whether kubelet gave a pod other devices than chosen. The checker's view may be older
// than the correction, and than the pod's end.
func (k *kubelet) gaveOther(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.record[uid]
	return h != nil && h.unlike() || !k.left[uid].IsZero()
}
