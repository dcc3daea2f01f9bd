// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/testing/defaults"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

// wholeScheduler is kube-scheduler with this plugin over one DGX-1V node and a fake API server.
type wholeScheduler struct {
	*testEnv
	attempts *counter
}

// counter is a plugin that counts scheduling cycles.
type counter struct{ names chan string }

func (*counter) Name() string { return "Counter" }

func (c *counter) PreFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c.names <- pod.Name
	return nil, fwk.NewStatus(fwk.Skip)
}

func (*counter) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (c *counter) drain() (out []string) {
	for {
		select {
		case name := <-c.names:
			out = append(out, name)
		default:
			return out
		}
	}
}

func newWholeScheduler(t *testing.T, clk clock.WithTicker) *wholeScheduler {
	t.Helper()
	w := newWholeSchedulerThrough(t, clk, func(c kubernetes.Interface) kubernetes.Interface { return c })
	w.waitSynced(t)
	return w
}

func (w *wholeScheduler) waitSynced(t *testing.T) {
	t.Helper()
	testkit.Soon(t, "the lists are in", func() bool {
		return w.state(t).Lists.Synced() && w.state(t).Nodes.CheckGraph(w.node) == placement.Fits
	})
}

// newWholeSchedulerThrough makes a scheduler whose API client is wrapped by through.
func newWholeSchedulerThrough(t *testing.T, clk clock.WithTicker, through func(kubernetes.Interface) kubernetes.Interface) *wholeScheduler {
	t.Helper()
	metrics.Register()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{})) // it logs a lot
	t.Cleanup(cancel)
	obj, node := topologyOf(t)
	w := &wholeScheduler{
		testEnv: &testEnv{
			client: fake.NewClientset(append(leases("n"), node)...), node: node, instances: map[string]fwk.Plugin{},
		},
		attempts: &counter{names: make(chan string, 100_000)},
	}
	w.shared = lifecycle.NewShared(clk, w.attach)
	w.client.PrependReactor("create", "pods", w.bindPod)
	w.factory = informers.NewSharedInformerFactory(w.client, 0)
	plugins := *defaults.PluginsV1
	enabled := []schedconfig.Plugin{{Name: topology.Name, Weight: 25}, {Name: "Counter"}}
	plugins.MultiPoint.Enabled = append(slices.Clone(plugins.MultiPoint.Enabled), enabled...)
	plugins.PostFilter.Enabled = []schedconfig.Plugin{{Name: topology.Name}}
	config := append(slices.Clone(defaults.PluginConfigsV1), schedconfig.PluginConfig{Name: topology.Name, Args: argsOf(t, topology.Name, setting{write: "PreBind"})})
	make := topology.New(w.shared)
	s, err := kubescheduler.New(ctx, through(w.client), w.factory, nil,
		profile.RecorderFactory(func(string) events.EventRecorder { return &events.FakeRecorder{} }),
		kubescheduler.WithProfiles(schedconfig.KubeSchedulerProfile{SchedulerName: "ours", Plugins: &plugins, PluginConfig: config}),
		kubescheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{
			topology.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
				p, err := make(ctx, args, h)
				w.instances[topology.Name] = p
				return p, err
			},
			"Counter": func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return w.attempts, nil },
		}))
	if err != nil {
		t.Fatal(err)
	}
	w.factory.Start(ctx.Done())
	w.factory.WaitForCacheSync(ctx.Done())
	testkit.Watched(t, w.client.Actions, "pods")
	if _, err := w.state(t).Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
	go s.Run(ctx)
	return w
}

// bindPod carries out a Binding as the API server does.
func (w *wholeScheduler) bindPod(action clienttesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(clienttesting.CreateAction)
	if !ok || action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b, ok := create.GetObject().(*v1.Binding)
	if !ok {
		return false, nil, nil
	}
	obj, err := w.client.Tracker().Get(v1.SchemeGroupVersion.WithResource("pods"), b.Namespace, b.Name)
	if err != nil {
		return true, nil, err
	}
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return true, nil, fmt.Errorf("%T is no pod", obj)
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	return true, b, w.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, b.Namespace)
}

// add makes a pod that preempts no pods.
func (w *wholeScheduler) add(t *testing.T, name string, gpus int, priority int32) {
	t.Helper()
	pod := schedtest.Pod(name).Scheduler("ours").Priority(priority).Created(time.Now()).CPU("2").Memory("1Gi").GPUs(gpus).
		PreemptionPolicy(v1.PreemptNever).Obj()
	if err := w.client.Tracker().Add(pod); err != nil {
		t.Fatal(err)
	}
	w.seen(t, name, func(*v1.Pod) bool { return true }) // the fake's watches have small buffers
}

func (w *wholeScheduler) bound(t *testing.T) (names []string) {
	t.Helper()
	list, err := w.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.NodeName != "" {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// await waits until n pods are bound.
func (w *wholeScheduler) await(t *testing.T, n int) []string {
	t.Helper()
	var names []string
	testkit.Eventually(t, 2*time.Minute, fmt.Sprint(n, " pods are bound"), func(context.Context) (bool, string) {
		names = w.bound(t)
		return len(names) >= n, fmt.Sprint(names)
	})
	return names
}

// TestQueueingHints: the queue releases the pods that a release helps. Pods end on the real scheduling
// queue, whose own hints would have every waiting pod tried for each of them.
func TestQueueingHints(t *testing.T) {
	const waiting, releases = 100, 5
	// No pod has waited so long that it is tried for that alone.
	w := newWholeScheduler(t, standing{now: time.Now()})
	for i := range 8 {
		w.add(t, fmt.Sprintf("running-%d", i), 1, 0)
	}
	running := w.await(t, 8)
	for i := range waiting {
		w.add(t, fmt.Sprintf("waiting-%03d", i), 1+i%3, 0)
	}
	for i := range releases {
		w.add(t, fmt.Sprintf("urgent-%d", i), 1, 7)
	}
	tried := map[string]bool{}
	testkit.Soon(t, "every pod has been tried", func() bool {
		for _, name := range w.attempts.drain() {
			tried[name] = true
		}
		return len(tried) == len(running)+waiting+releases
	})
	time.Sleep(3 * time.Second) // their backoffs
	w.attempts.drain()
	for i := range releases {
		if err := w.client.CoreV1().Pods("default").Delete(t.Context(), running[i], metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		now := w.await(t, 8)
		if n := len(slices.DeleteFunc(now, func(name string) bool { return !strings.HasPrefix(name, "urgent") })); n < i { // one may go to a pod whose cycle is running
			t.Errorf("after %d releases %d of the important pods run: %v", i+1, n, now)
		}
	}
	attempts := len(w.attempts.drain())
	t.Logf("%d attempts for %d releases", attempts, releases)
	if limit := 5*releases + 20; attempts > limit {
		t.Errorf("%d attempts for %d releases with %d pods waiting, want %d at most", attempts, releases, waiting, limit)
	}
}
