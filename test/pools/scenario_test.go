// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const (
	// quiet is the time without a change after which a scenario is settled, and in which a forbidden event
	// would show.
	quiet = 10 * time.Second
	// leaveLimit bounds the end of a scenario's pods and namespaces, on an overloaded machine.
	leaveLimit = 10 * time.Minute

	rackLabel = "topology.kubernetes.io/rack"
)

// scenarios counts the scenarios of the process; the number is part of the name.
var scenarios atomic.Int32

// scenario is one pool with its nodes and tenants. Scenarios share a cluster and run in parallel: names
// of all objects of one begin with the scenario's, and its pods select its nodes.
type scenario struct {
	*testEnv
	name  string // of the scenario, of its pool, and the beginning of all other names
	nodes []string
}

// newScenario creates the nodes of a pool that does not exist yet. The test runs in parallel with others.
func newScenario(t *testing.T, nodes ...devcluster.NodeSpec) *scenario {
	t.Helper()
	t.Parallel()
	return newScenarioOn(t, sharedEnv(t), nodes...)
}

// newScenarioOn is newScenario on a cluster of the test's own; newTestEnv makes it run in parallel with
// others.
func newScenarioOn(t *testing.T, l *testEnv, nodes ...devcluster.NodeSpec) *scenario {
	t.Helper()
	return newNamedScenario(t, l, fmt.Sprintf("s%d", scenarios.Add(1)), nodes...)
}

// newNamedScenario is newScenarioOn with a name for a transcript.
func newNamedScenario(t *testing.T, l *testEnv, name string, nodes ...devcluster.NodeSpec) *scenario {
	t.Helper()
	s := &scenario{testEnv: l, name: name}
	t.Logf("the pool is %s", s.name)
	l.recorder.open(s.name)
	t.Cleanup(func() { s.leave(t) })
	s.addNodes(t, nodes...)
	return s
}

// dgx returns n nodes of eight GPUs.
func dgx(n int) []devcluster.NodeSpec {
	return slices.Repeat([]devcluster.NodeSpec{{Machine: "dgx-a100"}}, n)
}

// racked returns n nodes of eight GPUs in each of some racks.
func racked(n int, racks ...string) (out []devcluster.NodeSpec) {
	for _, rack := range racks {
		out = append(out, slices.Repeat([]devcluster.NodeSpec{{Machine: "dgx-a100", Labels: map[string]string{rackLabel: rack}}}, n)...)
	}
	return out
}

// addNodes adds nodes to the pool, and names those without a name.
func (s *scenario) addNodes(t *testing.T, nodes ...devcluster.NodeSpec) {
	t.Helper()
	nodes = slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		if n.Name == "" {
			n.Name = fmt.Sprintf("%s-n%d", s.name, len(s.nodes))
		}
		n.Labels = maps.Clone(n.Labels)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[poolv1alpha1.LabelPool] = s.name
		s.nodes = append(s.nodes, n.Name)
	}
	if err := s.AddNodes(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	if err := s.RunExporters(t.Context(), nodes, devcluster.ExporterOptions{ServiceAccount: exporterAccount}); err != nil {
		t.Fatal(err)
	}
}

// tenant returns the name of a tenant and of its namespace: that of tenant a is s1-a.
func (s *scenario) tenant(short string) string { return s.name + "-" + short }

// tenants creates the namespaces of tenants.
func (s *scenario) tenants(t *testing.T, short ...string) {
	t.Helper()
	for _, name := range short {
		s.namespace(t, name, map[string]string{poolv1alpha1.LabelTenant: s.tenant(name)})
	}
}

// namespace creates a namespace of the scenario. One without the tenant's label belongs to no tenant.
func (s *scenario) namespace(t *testing.T, short string, labels map[string]string) {
	t.Helper()
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.tenant(short), Labels: labels}}
	if err := s.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
}

// yaml applies documents in which POOL stands for the scenario's name: a tenant is POOL-a.
func (s *scenario) yaml(t *testing.T, text string) {
	t.Helper()
	s.apply(t, strings.ReplaceAll(text, "POOL", s.name))
}

// tryYAML is yaml for objects that may be refused.
func (s *scenario) tryYAML(ctx context.Context, text string) error {
	return s.tryApply(ctx, strings.ReplaceAll(text, "POOL", s.name))
}

// computePool applies the spec of the scenario's pool, in YAML, indented by two. From now on
// the recorder checks the tenants' limits.
//
//	s.computePool(t, `
//	  poolType: gpu
//	  capacity: {total: 64, reserved: 8}
//	  quotas: [{tenant: POOL-a, limit: 32, guaranteed: 16}]`)
func (s *scenario) computePool(t *testing.T, spec string) {
	t.Helper()
	s.yaml(t, "apiVersion: pool.nvtopo.dev/v1alpha1\nkind: ComputePool\nmetadata: {name: POOL}\nspec:\n"+strings.Trim(spec, "\n")+"\n")
	var pool poolv1alpha1.ComputePool
	s.get(t, &pool, "", s.name)
	capacity := int64(pool.Spec.Capacity.Total - pool.Spec.Capacity.Reserved)
	s.recorder.read(s.name, func(a *account) {
		a.capacity = max(a.capacity, capacity)
		for _, q := range pool.Spec.Quotas {
			limit := capacity
			if q.Limit != nil {
				limit = int64(*q.Limit)
			}
			a.limits[q.Tenant] = max(a.limits[q.Tenant], limit)
		}
	})
}

// status returns the pool's status.
func (s *scenario) status(t *testing.T) *poolv1alpha1.ComputePoolStatus {
	t.Helper()
	var pool poolv1alpha1.ComputePool
	s.get(t, &pool, "", s.name)
	return &pool.Status
}

// waitPool waits until the pool's status fulfils done.
func (s *scenario) waitPool(t *testing.T, what string, done func(*poolv1alpha1.ComputePoolStatus) bool) {
	t.Helper()
	s.waitFor(t, what, func(ctx context.Context) (bool, string) {
		var pool poolv1alpha1.ComputePool
		if err := s.Get(ctx, client.ObjectKey{Name: s.name}, &pool); err != nil {
			return false, err.Error()
		}
		current := pool.Status.ObservedGeneration == pool.Generation
		return current && done(&pool.Status), fmt.Sprintf("generation %d, status %+v", pool.Generation, pool.Status)
	})
}

// ready waits until the pool admits jobs by its spec.
func (s *scenario) ready(t *testing.T) {
	t.Helper()
	s.waitPool(t, "pool "+s.name+" is ready", func(status *poolv1alpha1.ComputePoolStatus) bool {
		return status.Phase == poolv1alpha1.PoolReady
	})
}

// waitFor waits for a condition. A failing test prints the last state seen, and the scenario's jobs and
// pods.
func (s *scenario) waitFor(t *testing.T, what string, ask func(context.Context) (bool, string)) {
	t.Helper()
	testkit.Eventually(t, patience, what, func(ctx context.Context) (bool, string) {
		done, seen := ask(ctx)
		if !done {
			seen += "\n" + s.describe()
		}
		return done, seen
	})
}

// waitGone waits until an object is gone.
func (s *scenario) waitGone(t *testing.T, o client.Object) {
	t.Helper()
	there, _ := o.DeepCopyObject().(client.Object)
	s.waitFor(t, fmt.Sprintf("%T %s is gone", o, o.GetName()), func(ctx context.Context) (bool, string) {
		err := s.Get(ctx, client.ObjectKeyFromObject(o), there)
		return apierrors.IsNotFound(err), fmt.Sprintf("%v, %+v", err, there)
	})
}

// settled waits until nothing has changed for ten seconds.
func (s *scenario) settled(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, patience, s.name+" settles", func(context.Context) (done bool, seen string) {
		s.recorder.read(s.name, func(a *account) { done = time.Since(a.changed) >= quiet })
		if !done {
			seen = s.describe() + "\n  written last:\n  "
			s.recorder.read(s.name, func(a *account) { seen += strings.Join(a.written, "\n  ") })
		}
		return done, seen
	})
}

// leave removes the scenario's objects, so that later ones are not slowed, and fails the test if a limit
// was ever exceeded.
func (s *scenario) leave(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	if t.Failed() {
		t.Log(s.describe())
	} else {
		s.nothingOverdue(t)
	}
	s.recorder.read(s.name, func(a *account) {
		const first = 10 // later ones do not help
		wrong := a.beyond()
		for _, e := range wrong[:min(first, len(wrong))] {
			testkit.Violation(t, "beyond a limit: %s", e.said)
		}
		if len(wrong) > 0 {
			t.Logf("changes of quota before the first:\n%s", strings.Join(wrong[0].before, "\n"))
		}
	})
	var namespaces v1.NamespaceList
	if err := s.List(ctx, &namespaces); err != nil {
		t.Errorf("leave %s: %v", s.name, err)
	}
	var left []*v1.Namespace
	for i := range namespaces.Items {
		if n := &namespaces.Items[i]; strings.HasPrefix(n.Name, s.name+"-") {
			left = append(left, n)
			s.forget(ctx, t, n)
		}
	}
	for _, n := range left { // their pods need the nodes to end on
		now := n.DeepCopy()
		for !apierrors.IsNotFound(s.Get(ctx, client.ObjectKeyFromObject(n), now)) {
			if ctx.Err() != nil {
				t.Errorf("leave %s: namespace %s stays: %+v", s.name, n.Name, now.Status.Conditions)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	s.forget(ctx, t, &poolv1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: s.name}})
	if err := s.RemoveNodes(ctx, s.nodes...); err != nil {
		t.Errorf("leave %s: %v", s.name, err)
	}
	s.recorder.close(s.name)
}

// nothingOverdue waits until the objects that the recorder leaves out are gone. The test's own context
// has ended.
func (s *scenario) nothingOverdue(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var left string
		s.recorder.read(s.name, func(a *account) { left = a.overdue() })
		if left == "" {
			return
		}
		if time.Now().After(end) {
			testkit.Violation(t, "leave %s: not gone within %v: %s", s.name, patience, left)
			return
		}
	}
}

// forget deletes an object, if it exists.
func (s *scenario) forget(ctx context.Context, t *testing.T, o client.Object) {
	t.Helper()
	if err := s.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("leave %s: delete %T %s: %v", s.name, o, o.GetName(), err)
	}
}
