// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	// patience bounds the programs' steps, which take about a second, and the start of a cluster, which
	// takes half a minute.
	patience = 5 * time.Minute

	fieldOwner        = "test"
	exporterAccount   = release.Namespace + "/nvtopo-exporter"
	controllerAccount = release.Namespace + "/nvtopo-pool-controller"
)

// testEnv is a cluster without nodes, with Kueue, the scheduler and the pool controller as they are
// shipped.
type testEnv struct {
	*devcluster.Cluster
	client.Client // as the administrator, and without a cache
	pools         *devcluster.PoolController
	recorder      *recorder
	refusals      *faults
	crashes       *faults
	stop          context.CancelFunc // of the recorder's watches
}

// shared is the cluster of all scenarios, started by the first.
var shared struct {
	once sync.Once
	env  *testEnv
	err  error
	stop func() // stops the restarts of its programs
}

func stopShared() error {
	if shared.env == nil {
		return nil
	}
	shared.stop()
	return shared.env.end()
}

// programs are the paths of the programs that a testEnv runs.
type programs struct{ kwok, scheduler, controller, kueue, kueueConfig string }

func findPrograms(t *testing.T) programs {
	t.Helper()
	binary, config := testkit.Kueue(t)
	return programs{
		kwok: testkit.Kwok(t), scheduler: testkit.Program(t, "nvtopo-scheduler"), controller: testkit.Program(t, "nvtopo-pool-controller"),
		kueue: binary, kueueConfig: config,
	}
}

// sharedEnv returns the cluster that the tests of the package share.
func sharedEnv(t *testing.T) *testEnv {
	t.Helper()
	p := findPrograms(t)
	shared.once.Do(func() {
		if shared.env, shared.err = boot(context.Background(), p); shared.err == nil { // it outlives the test
			shared.stop = shared.env.keepRunning()
		}
	})
	if shared.err != nil {
		t.Fatalf("start the shared cluster: %v", shared.err)
	}
	return shared.env
}

// newTestEnv returns a cluster of the test's own, for a test that kills programs or changes objects that
// all tenants share. The test runs in parallel with others.
func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	l, err := boot(t.Context(), findPrograms(t))
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := l.end(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	return l
}

// end stops the cluster. It is an error if the pool controller was ever refused a request that its role,
// or a policy, should have allowed, or if a program crashed.
func (e *testEnv) end() error {
	e.stop()
	return errors.Join(e.Stop(), e.refusals.err(), e.crashes.err())
}

func boot(ctx context.Context, p programs) (_ *testEnv, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience) // includes the waits below
	defer cancel()
	crashes := newCrashes(testkit.Log())
	c, err := demo.Boot(ctx, &demo.Options{
		Kwok: p.kwok, Scheduler: p.scheduler, Nodes: []devcluster.NodeSpec{},
		Kueue:    &devcluster.KueueOptions{Binary: p.kueue, Config: p.kueueConfig},
		Progress: testkit.Log(), Log: crashes,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := c.ApplyManifests(ctx, manifests.Pools); err != nil {
		return nil, err
	}
	l := &testEnv{Cluster: c, recorder: newRecorder(), refusals: newRefusals(crashes), crashes: crashes}
	if l.Client, err = client.New(c.RESTConfig(), client.Options{Scheme: kinds()}); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if l.stop, err = l.record(ctx); err != nil {
		return nil, err
	}
	l.pools, err = c.StartPoolController(ctx, devcluster.PoolControllerOptions{
		Binary: p.controller, ServiceAccount: controllerAccount, Log: l.refusals, Args: []string{"--gate-image=" + gateImage},
	})
	if err != nil {
		return nil, err
	}
	return l, l.waitCollector(ctx)
}

// waitCollector waits until the garbage collector knows ElasticJobs. It discovers new kinds late, and
// retries unknown owners with growing pauses.
func (e *testEnv) waitCollector(ctx context.Context) error {
	orphan := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "orphan", Namespace: metav1.NamespaceDefault,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: poolv1alpha1.SchemeGroupVersion.String(), Kind: poolv1alpha1.ElasticJobKind, Name: "nobody", UID: "nobody",
		}},
	}}
	return wait.PollUntilContextTimeout(ctx, 2*time.Second, patience, true, func(ctx context.Context) (bool, error) {
		err := e.Create(ctx, orphan.DeepCopy())
		if apierrors.IsAlreadyExists(err) {
			err = e.Delete(ctx, orphan.DeepCopy()) // the next one is judged from the start
			return false, client.IgnoreNotFound(err)
		}
		if err != nil {
			return false, fmt.Errorf("make an orphan: %w", err)
		}
		err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Second, true, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(e.Get(ctx, client.ObjectKeyFromObject(orphan), &v1.ConfigMap{})), nil
		})
		return err == nil, nil // not yet
	})
}

// kinds returns the scheme of the kinds that the tests read and write.
func kinds() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), kueue.AddToScheme(s), poolv1alpha1.AddToScheme(s), topologyv1alpha1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

// record makes the recorder watch pods, Jobs, Workloads and ClusterQueues, until stop is called.
func (e *testEnv) record(ctx context.Context) (stop context.CancelFunc, err error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			stop()
		}
	}()
	watches, err := cache.New(e.RESTConfig(), cache.Options{Scheme: kinds()})
	if err != nil {
		return nil, fmt.Errorf("make the recorder's cache: %w", err)
	}
	for _, kind := range []client.Object{&v1.Pod{}, &batchv1.Job{}, &kueue.Workload{}, &kueue.ClusterQueue{}} {
		informer, err := watches.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		if _, err := informer.AddEventHandler(e.recorder); err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
	}
	go func() {
		if err := watches.Start(watching); err != nil {
			fmt.Fprintln(testkit.Log(), "the recorder's watches:", err)
		}
	}()
	if !watches.WaitForCacheSync(ctx) {
		return nil, errors.New("the recorder's watches do not start")
	}
	return stop, nil
}

// apply applies the objects of some documents of YAML, server-side.
func (e *testEnv) apply(t *testing.T, text string) {
	t.Helper()
	if err := e.tryApply(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

// tryApply is apply for objects that may be refused.
func (e *testEnv) tryApply(ctx context.Context, text string) error {
	for document := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return fmt.Errorf("read %s: %w", document, err)
		}
		if err := e.applyObject(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (e *testEnv) applyObject(ctx context.Context, o *unstructured.Unstructured) error {
	err := e.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(fieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// get reads an object, which has to exist.
func (e *testEnv) get(t *testing.T, o client.Object, namespace, name string) {
	t.Helper()
	if err := e.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		t.Fatalf("read %T %s/%s: %v", o, namespace, name, err)
	}
}

// remove deletes an object and its dependents, if it exists.
func (e *testEnv) remove(t *testing.T, o client.Object) {
	t.Helper()
	if err := e.Delete(t.Context(), o, client.PropagationPolicy("Background")); err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("delete %T %s/%s: %v", o, o.GetNamespace(), o.GetName(), err)
	}
}
