// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/pkg/inspect/check"
)

const (
	hostileNamespace = "soak-hostile"
	hostileAccount   = "tenant"
	// attackEvery is the mean time between two attacks, and attackTime bounds one.
	attackEvery = 500 * time.Millisecond
	attackTime  = 30 * time.Second
	// burstInChurn and burstInSiege are the numbers of impossible pods in a burst.
	burstInChurn, burstInSiege = 200, 500
)

// hostile is a tenant that uses its rights to the full and tries to exceed them: an account with the
// rights of Kubernetes' role edit, and all rights on PodGroups, in one namespace, through a client of its
// own. The order of attacks follows from the seed; the attacked pod depends on the existing ones.
type hostile struct {
	w      *testEnv
	kube   kubernetes.Interface
	dyn    dynamic.Interface
	random *rand.Rand
	burst  int
	made   int
	gangs  []string            // oldest first
	groups []string            // those of them with a PodGroup
	pods   map[string][]string // kind -> oldest first
}

// admitTenant creates the hostile tenant's namespace and account.
func (e *testEnv) admitTenant(t *testing.T) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: hostileAccount, Namespace: hostileNamespace}
	roles, err := e.kube.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err == nil {
		_, err = e.kube.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostileNamespace}}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = e.kube.CoreV1().ServiceAccounts(hostileNamespace).Create(t.Context(), &v1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	}
	if err == nil {
		rules := append(rulesOf(roles.Items, "edit"), rbacv1.PolicyRule{
			APIGroups: []string{groupResource.Group}, Resources: []string{groupResource.Resource}, Verbs: []string{rbacv1.VerbAll},
		})
		_, err = e.kube.RbacV1().Roles(hostileNamespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = e.kube.RbacV1().RoleBindings(hostileNamespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: hostileAccount},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: hostileNamespace, Name: hostileAccount}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := e.cluster.ServiceAccountConfig(t.Context(), hostileNamespace, hostileAccount)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 200, 500
	e.hostile = &hostile{
		w: e, kube: kubernetes.NewForConfigOrDie(cfg), dyn: dynamic.NewForConfigOrDie(cfg),
		random: rand.New(rand.NewPCG(e.seed, 1<<32)), pods: map[string][]string{},
	}
	err = e.try(t.Context(), "have the hostile tenant see its pods", func(ctx context.Context) error {
		_, err := e.hostile.kube.CoreV1().Pods(hostileNamespace).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rulesOf returns the rules of a ClusterRole. No controller aggregates them here.
func rulesOf(roles []rbacv1.ClusterRole, name string) (rules []rbacv1.PolicyRule) {
	i := slices.IndexFunc(roles, func(r rbacv1.ClusterRole) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	if roles[i].AggregationRule == nil {
		return slices.Clone(roles[i].Rules)
	}
	for _, wanted := range roles[i].AggregationRule.ClusterRoleSelectors {
		for k := range roles {
			if labels.SelectorFromSet(wanted.MatchLabels).Matches(labels.Set(roles[k].Labels)) {
				rules = append(rules, rulesOf(roles, roles[k].Name)...)
			}
		}
	}
	return rules
}

// attack makes the hostile tenant act, if there is one, until stop is called, which returns when none of
// the tenant's requests is in progress.
func (e *testEnv) attack(burst int) (stop func()) {
	if e.hostile == nil {
		return func() {}
	}
	e.hostile.burst = burst
	return e.run(e.hostile.run).stop
}

func (h *hostile) run(ctx context.Context) error {
	if h.burst > burstInChurn {
		h.do(ctx, &attack{name: "a burst of impossible pods", do: (*hostile).impossible})
	}
	total := 0
	for i := range attacks {
		total += attacks[i].weight
	}
	for pause(ctx, time.Duration((0.5+h.random.Float64())*float64(attackEvery))) {
		pick, i := h.random.IntN(total), 0
		for ; pick >= attacks[i].weight; i++ {
			pick -= attacks[i].weight
		}
		h.do(ctx, &attacks[i])
	}
	return nil
}

// do makes one attack and counts its result.
func (h *hostile) do(ctx context.Context, a *attack) {
	ctx, cancel := context.WithTimeout(ctx, attackTime)
	defer cancel()
	err := a.do(h, ctx)
	what := "let pass"
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return // the churn is over
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		what = "refused"
	case err != nil:
		what = "without effect"
		h.w.note("hostile tenant: %s: %v", a.name, err)
	case a.forbidden:
		h.w.violate("the hostile tenant's attack was let pass: %s", a.name)
	}
	h.w.count("hostile: "+a.name+", "+what, 1)
}

// expel deletes all objects of the hostile tenant, and waits until kubelets have released its pods.
func (e *testEnv) expel(ctx context.Context) {
	h := e.hostile
	if h == nil || e.ctx.Err() != nil {
		return
	}
	h.gangs, h.groups = nil, nil
	clear(h.pods)
	err := e.try(ctx, "expel the hostile tenant", func(ctx context.Context) error {
		err := e.dyn.Resource(groupResource).Namespace(hostileNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		return errors.Join(err, e.kube.CoreV1().Pods(hostileNamespace).DeleteCollection(ctx,
			metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
	if err == nil {
		err = e.try(ctx, "see the hostile tenant's pods gone", func(ctx context.Context) error {
			list, err := e.kube.CoreV1().Pods(hostileNamespace).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("%d pods are left, such as %s", len(list.Items), list.Items[0].Name)
			}
			return err
		})
	}
	if err != nil && e.ctx.Err() == nil {
		e.fail("%v", err)
	}
}

// own returns the hostile tenant's pods, by name.
func (h *hostile) own() []*v1.Pod {
	objs, err := h.w.pods.GetIndexer().ByIndex(cache.NamespaceIndex, hostileNamespace)
	if err != nil {
		return nil
	}
	var out []*v1.Pod
	for _, o := range objs {
		if p, ok := o.(*v1.Pod); ok {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ofItself reports whether a finding concerns only the hostile tenant's own gang, whose members, PodGroup
// and labels it may remove while they are bound.
func ofItself(v *check.Violation) bool {
	return slices.Contains([]string{check.GangPartlyBound, check.GangScattered, check.GangRankShared}, v.Invariant) &&
		!slices.ContainsFunc(v.Objects, func(o check.Object) bool { return o.Namespace != hostileNamespace })
}
