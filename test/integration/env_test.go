// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const (
	topologyPlugin  = "TopologyAware"
	numaPlugin      = "NUMAAffinity"
	gangPlugin      = "GangPlacement"
	systemNamespace = release.Namespace

	// waitLimit bounds every wait of a test, on an overloaded machine. It is less than the five minutes
	// after which kube-scheduler retries every pod, so that a pod without a wake-up is found.
	waitLimit = 4 * time.Minute

	// requestTimeout is short, so that a choice in doubt is decided within a test.
	requestTimeout = 3 * time.Second
)

// profile is one profile of a scheduler's configuration.
type profile struct {
	name    string
	write   string            // annotationWrite
	plugins []string          // of ours; both when empty
	args    map[string]string // plugin -> further arguments, as one line of YAML
	binders []string          // plugins.bind; the binder of the write when empty

	percentage int // percentageOfNodesToScore; the scheduler's default when 0
	weight     int // of TopologyAware; as shipped when 0
}

// schedulerConfig returns a configuration with the stock profile and these. Pods are retried fast, so
// that tests need not wait.
func schedulerConfig(profiles ...profile) []byte {
	var b strings.Builder
	b.WriteString(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: KUBECONFIG, qps: 5000, burst: 10000}
leaderElection: {leaderElect: false}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
- schedulerName: default-scheduler
`)
	for _, p := range profiles {
		plugins, binders := p.plugins, p.binders
		if len(plugins) == 0 {
			plugins = []string{topologyPlugin, numaPlugin}
		}
		if len(binders) == 0 && p.write == "Binding" {
			binders = []string{plugins[0], "DefaultBinder"}
		}
		fmt.Fprintf(&b, "- schedulerName: %s\n  percentageOfNodesToScore: %d\n  plugins:\n    multiPoint:\n      enabled:\n", p.name, p.percentage)
		for _, name := range plugins {
			weight := 4
			if name == topologyPlugin {
				weight = cmp.Or(p.weight, 25)
			}
			fmt.Fprintf(&b, "      - {name: %s, weight: %d}\n", name, weight)
		}
		switch {
		case slices.Contains(plugins, gangPlugin):
			fmt.Fprintf(&b, "    postFilter: {enabled: [{name: %s}, {name: %s}]}\n", gangPlugin, topologyPlugin)
		case slices.Contains(plugins, topologyPlugin):
			fmt.Fprintf(&b, "    postFilter: {enabled: [{name: %s}]}\n", topologyPlugin)
		}
		if len(binders) > 0 {
			b.WriteString("    bind:\n      disabled: [{name: \"*\"}]\n      enabled:\n")
			for _, name := range binders {
				fmt.Fprintf(&b, "      - {name: %s}\n", name)
			}
		}
		b.WriteString("  pluginConfig:\n")
		for _, name := range plugins {
			if name == gangPlugin {
				if extra := p.args[name]; extra != "" {
					fmt.Fprintf(&b, "  - name: %s\n    args:\n      %s\n", name, extra)
				}
				continue
			}
			fmt.Fprintf(&b, "  - name: %s\n    args:\n      annotationWrite: %s\n      requestTimeout: %s\n", name, p.write, requestTimeout)
			if extra := p.args[name]; extra != "" {
				fmt.Fprintf(&b, "      %s\n", extra)
			}
		}
	}
	return []byte(b.String())
}

// testEnv is a cluster whose nodes' link graphs the test knows.
type testEnv struct {
	*devcluster.Cluster
	client kubernetes.Interface
	graphs map[string]*nvtopo.Graph // node name -> link graph
	names  int                      // number of names that freshName returned

	// schedulerAccount and exporterAccount are the shipped accounts once install created them; before that
	// the programs run as the administrator.
	schedulerAccount, exporterAccount string

	schedulerFlags []string // beside the configuration
}

// announcing makes kube-scheduler write the node of a pod's choice to its status before the pod is bound,
// as it does by default in builds other than ours: both must work.
const announcing = "--feature-gates=NominatedNodeNameForExpectation=true"

func newTestEnv(t *testing.T, cfg devcluster.Config) *testEnv {
	t.Helper()
	return testEnvOn(t, startCluster(t, cfg))
}

func testEnvOn(t *testing.T, c *devcluster.Cluster) *testEnv {
	t.Helper()
	return &testEnv{Cluster: c, client: clientFor(t, c), graphs: map[string]*nvtopo.Graph{}}
}

// install applies the shipped manifests. Programs that start afterwards have only the rights that these
// give.
func (e *testEnv) install(t *testing.T) {
	t.Helper()
	if err := e.InstallManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.schedulerAccount, e.exporterAccount = systemNamespace+"/nvtopo-scheduler", systemNamespace+"/nvtopo-exporter"
}

// startScheduler runs the scheduler under test with the given profiles.
func (e *testEnv) startScheduler(t *testing.T, profiles ...profile) *devcluster.Scheduler {
	t.Helper()
	s, err := e.tryScheduler(t, nil, profiles...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tryScheduler is startScheduler for a configuration that may be refused.
func (e *testEnv) tryScheduler(t *testing.T, log io.Writer, profiles ...profile) (*devcluster.Scheduler, error) {
	t.Helper()
	return e.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: testkit.Program(t, "nvtopo-scheduler"),
		Config: schedulerConfig(profiles...), ServiceAccount: e.schedulerAccount, Args: e.schedulerFlags, Log: log,
	})
}

// addNode creates a node whose graph is not published yet.
func (e *testEnv) addNode(t *testing.T, name, machine string) devcluster.NodeSpec {
	t.Helper()
	spec := devcluster.NodeSpec{Name: name, Machine: machine}
	g, err := spec.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.AddNode(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	e.graphs[name] = g
	return spec
}

// publish publishes the graphs of nodes.
func (e *testEnv) publish(t *testing.T, opts devcluster.ExporterOptions, specs ...devcluster.NodeSpec) {
	t.Helper()
	opts.ServiceAccount = e.exporterAccount
	if err := e.RunExporters(t.Context(), specs, opts); err != nil {
		t.Fatal(err)
	}
}

// publishOnce publishes a graph as a node's, and its Leases, which are not renewed.
func (e *testEnv) publishOnce(t *testing.T, spec devcluster.NodeSpec, g *nvtopo.Graph) {
	t.Helper()
	if err := e.tryPublish(t, spec, g); err != nil {
		t.Fatal(err)
	}
}

// tryPublish is publishOnce for a graph that may be refused.
func (l *testEnv) tryPublish(t *testing.T, spec devcluster.NodeSpec, g *nvtopo.Graph) error {
	t.Helper()
	l.graphs[spec.Name] = g
	dyn, err := dynamic.NewForConfig(l.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	e, err := exporter.New(exporter.Config{NodeName: spec.Name, Namespace: systemNamespace, AssumeEnforced: true},
		exporter.Static(g), l.client, dyn)
	if err != nil {
		t.Fatal(err)
	}
	return e.PublishOnce(t.Context())
}

// node creates a node and publishes its graph.
func (e *testEnv) node(t *testing.T, name, machine string) *nvtopo.Graph {
	t.Helper()
	e.publish(t, devcluster.ExporterOptions{}, e.addNode(t, name, machine))
	return e.graphs[name]
}

func (e *testEnv) create(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// settleTime is how long the scheduler may take to receive a deletion; testkit.Naps extends it on a busy
// machine. Its receipt cannot be observed from outside, and only a test that expects the freed GPUs at
// the very next decision depends on it.
const settleTime = 200 * time.Millisecond

// remove deletes pods, which are gone at once: no kubelet holds them.
func (e *testEnv) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	testkit.Naps(settleTime)
}

func (e *testEnv) get(t *testing.T, name string) *v1.Pod {
	t.Helper()
	pod, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// bound waits until a pod has a node and returns it.
func (e *testEnv) bound(t *testing.T, name string) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	testkit.Eventually(t, waitLimit, "pod "+name+" is bound", func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = e.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return pod.Spec.NodeName != "", fmt.Sprintf("%+v", pod.Status.Conditions)
	})
	return pod
}

// refused waits until the scheduler has written why a pod does not fit, and returns the message.
func (e *testEnv) refused(t *testing.T, name string) string {
	t.Helper()
	var message string
	testkit.Eventually(t, waitLimit, "pod "+name+" is refused", func(ctx context.Context) (bool, string) {
		pod, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		message = refusal(pod)
		return message != "", fmt.Sprintf("node %q, conditions %+v", pod.Spec.NodeName, pod.Status.Conditions)
	})
	return message
}

// refusal returns the scheduler's message about a pod that does not fit, or an empty string.
func refusal(pod *v1.Pod) string {
	i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse
	})
	if i < 0 {
		return ""
	}
	return pod.Status.Conditions[i].Message
}

// priorities creates priority classes, and waits until the API server admits pods with them: its
// admission looks them up in a cache.
func (e *testEnv) priorities(t *testing.T, classes map[string]int32) {
	t.Helper()
	for name, value := range classes {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if _, err := e.client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		probe := gpuPod("priority-probe", "none", 0).PriorityClass(name).Obj()
		testkit.Eventually(t, waitLimit, "pods may have priority class "+name, func(ctx context.Context) (bool, string) {
			_, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil, fmt.Sprint(err)
		})
	}
}
