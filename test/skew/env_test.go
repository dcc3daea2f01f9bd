// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	systemNamespace = "nvtopo-system"
	schedulerName   = "topology-aware-scheduler"
	exporterAccount = "nvtopo-exporter"
)

// testEnv is a cluster of simulated nodes whose programs are of either release.
type testEnv struct {
	*devcluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	nodes   []devcluster.NodeSpec

	scheduler *devcluster.Scheduler
	exporters map[string]*program // node name -> its exporter
	made      int                 // pods so far
}

// newTestEnv starts a cluster with the manifests of a release and no program yet.
func newTestEnv(t *testing.T, r release) *testEnv {
	t.Helper()
	c, err := devcluster.Start(t.Context(), devcluster.Config{KwokBinary: filepath.Join(testkit.Bin(), "kwok"), Log: testkit.Log()})
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	l := &testEnv{Cluster: c, exporters: map[string]*program{}}
	if l.client, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if l.dynamic, err = dynamic.NewForConfig(c.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	l.install(t, r)
	l.standIn(t)
	for i, machine := range []string{"dgx-h100", "dgx1-v100", "l40s-8", "dgx-a100"} {
		l.nodes = append(l.nodes, devcluster.NodeSpec{Name: fmt.Sprintf("n%d", i+1), Machine: machine})
	}
	if err := l.AddNodes(t.Context(), l.nodes); err != nil {
		t.Fatal(err)
	}
	return l
}

// install applies the manifests of a release over whatever is there.
func (e *testEnv) install(t *testing.T, r release) {
	t.Helper()
	if err := e.ApplyManifests(t.Context(), r.manifests); err != nil {
		t.Fatalf("the manifests of the %s release: %v", r, err)
	}
}

// standIn lets exporters say that their simulated nodes are enforced.
func (e *testEnv) standIn(t *testing.T) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "skew-simulated-agents"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nvtopo-node-agent"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: exporterAccount}},
	}
	if _, err := e.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// schedulerConfig is the shipped configuration of a release. The leader is
// replaced faster, so that a killed one does not cost a quarter of a minute.
func schedulerConfig(t *testing.T, r release) []byte {
	t.Helper()
	data, err := fs.ReadFile(r.manifests, "scheduler/scheduler-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	election, ok := fields["leaderElection"].(map[string]any)
	if !ok {
		t.Fatalf("the configuration of the %s release elects no leader", r)
	}
	election["leaseDuration"], election["renewDeadline"], election["retryPeriod"] = "10s", "8s", "1s"
	fields["podInitialBackoffSeconds"], fields["podMaxBackoffSeconds"] = 1, 2
	if data, err = yaml.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return data
}

// startScheduler starts a scheduler of a release, which leads or stands by.
func (e *testEnv) startScheduler(t *testing.T, r release) *devcluster.Scheduler {
	t.Helper()
	s, err := e.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: r.program("nvtopo-scheduler"), Config: schedulerConfig(t, r), ServiceAccount: systemNamespace + "/nvtopo-scheduler",
	})
	if err != nil {
		t.Fatalf("the scheduler of the %s release: %v", r, err)
	}
	return s
}

// rollScheduler replaces the scheduler as a Deployment does: the next one stands
// by before the one that leads is told to end.
func (e *testEnv) rollScheduler(t *testing.T, r release) {
	t.Helper()
	next := e.startScheduler(t, r)
	if e.scheduler != nil {
		if err := e.scheduler.Stop(t.Context()); err != nil {
			t.Fatalf("stop the scheduler: %v", err)
		}
	}
	e.scheduler = next
}

// rollExporters replaces the exporters, one node after the other, and waits until
// each vouches for its node.
func (e *testEnv) rollExporters(t *testing.T, r release, compact bool) {
	t.Helper()
	for i := range e.nodes {
		n := &e.nodes[i]
		if p := e.exporters[n.Name]; p != nil {
			p.stop()
		}
		kubeconfig := filepath.Join(e.Dir(), n.Name+".kubeconfig")
		cfg, err := e.NodeBoundConfig(t.Context(), systemNamespace, exporterAccount, n.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := devcluster.WriteKubeconfigOf(cfg, kubeconfig); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		args := []string{
			"--source=" + e.source(t, r, n), "--node-name=" + n.Name, "--kubeconfig=" + kubeconfig,
			"--assume-enforced", "--interval=1s", "--metrics-address=",
		}
		if compact {
			args = append(args, "--compact")
		}
		p := start(t, r.program("nvtopo-exporter"), args...)
		e.exporters[n.Name] = p
		for _, prefix := range []string{"exporter-", "agent-"} {
			testkit.Eventually(t, patience, fmt.Sprintf("the exporter of the %s release vouches for %s", r, n.Name), func(ctx context.Context) (bool, string) {
				if p.ended() {
					t.Fatalf("the exporter of the %s release on %s has ended", r, n.Name)
				}
				lease, err := e.client.CoordinationV1().Leases(systemNamespace).Get(ctx, prefix+n.Name, metav1.GetOptions{})
				if err != nil {
					return false, err.Error()
				}
				return lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(started), fmt.Sprint(lease.Spec.RenewTime)
			})
		}
	}
}

// source is where a node's exporter reads its graph: of the last node, a file in which
// one GPU is lost, so that something is said of it that only one release says. The
// reason is another in each, so that each writes it.
func (e *testEnv) source(t *testing.T, r release, n *devcluster.NodeSpec) string {
	t.Helper()
	if n.Name != e.nodes[len(e.nodes)-1].Name {
		return "machine:" + n.Machine
	}
	g, err := n.Graph()
	if err != nil {
		t.Fatal(err)
	}
	obj := v1alpha1.FromGraph(n.Name, v1alpha1.DefaultResource, g)
	obj.Status = v1alpha1.NodeGPUTopologyStatus{GPUHealth: []v1alpha1.GPUHealth{{ID: g.GPUs[0].UUID, Reason: "GPU is lost: as the " + r.name + " release has it"}}}
	data, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(e.Dir(), n.Name+".yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return "file:" + path
}

// program is a child that ends with the test, and with this process.
type program struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs a program until stop or the end of the test.
func start(t *testing.T, path string, args ...string) *program {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "KUBECONFIG=")
	cmd.Stdout, cmd.Stderr = testkit.Log(), testkit.Log()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &program{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The parent-death signal comes when the thread ends that made the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	t.Cleanup(p.stop)
	return p
}

func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop asks it to end and waits, and kills it after ten seconds.
func (p *program) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
