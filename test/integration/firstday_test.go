// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// sessions are continuing sessions of two tenants.
const sessions = `apiVersion: pool.nvtopo.dev/v1alpha1
kind: UsageRecord
metadata: {name: u1, namespace: default}
spec: {tenant: team-a, pool: p, pod: a, podUID: u1, node: n1, resource: nvidia.com/gpu, model: NVIDIA-H200, queue: research, quantity: "8", start: START}
---
apiVersion: pool.nvtopo.dev/v1alpha1
kind: UsageRecord
metadata: {name: u2, namespace: default}
spec: {tenant: team-b, pool: p, pod: b, podUID: u2, node: n1, resource: nvidia.com/gpu, model: NVIDIA-H200, queue: batch, quantity: "2", start: START}`

// firstDay is a cluster on its first day.
type firstDay struct {
	*testEnv
	objects   *clusterObjects
	heard     *warned
	scheduler *devcluster.Scheduler
	user      kubernetes.Interface // warns as kubectl does
}

// TestFirstDay runs twelve tasks of an operator's first day, each by commands that the docs name, on a
// cluster of two fast machines and two slow ones.
func TestFirstDay(t *testing.T) {
	d := &firstDay{testEnv: newTestEnv(t, devcluster.Config{}), heard: &warned{}}
	d.install(t)
	if err := d.ApplyManifests(t.Context(), manifests.Pools); err != nil {
		t.Fatal(err)
	}
	d.objects = d.testEnv.objects(t)
	config := rest.CopyConfig(d.RESTConfig())
	config.WarningHandler = d.heard
	var err error
	if d.user, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	d.awaitInputs(t, true)
	for i, machine := range []string{"hgx-h200", "hgx-h200", "dgx1-v100", "dgx1-v100"} {
		d.node(t, fmt.Sprint("node-", i), machine)
	}
	d.scheduler = d.startShipped(t, manifests.SchedulerConfigPath)
	d.wantPublished(t)
	for _, task := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"1 what does the cluster have", d.whatIsThere},
		{"2 run a job, and see what it got", d.runJob},
		{"3 why does a pod wait, and what helps", d.wait},
		{"4 what have the fast machines left", d.fast},
		{"5 which GPUs would it get now", d.bestNow},
		{"6 a misspelled annotation", d.misspell},
		{"7 a bandwidth with a unit", d.units},
		{"8 check a configuration before it is rolled out", d.checkConfig},
		{"9 which pods move so that more is free", d.defrag},
		{"10 an exporter dies", d.deadExporter},
		{"11 who used most GPU hours", d.hours},
		{"12 uninstall, with all pods as they are", d.uninstall},
	} {
		if !t.Run(task.name, task.do) {
			return // the tasks build upon each other
		}
	}
}

// says checks that a command prints a text, and returns its output.
func (d *firstDay) says(t *testing.T, want string, args ...string) string {
	t.Helper()
	out := d.nvtopo(t, args...)
	if !strings.Contains(out, want) {
		t.Errorf("nvtopo %s does not say %q:\n%s", strings.Join(args, " "), want, out)
	}
	return out
}

// fails checks that a command ends with a code and an error with a text.
func (d *firstDay) fails(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	cmd := cli.New("nvtopo")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if cli.ExitCode(err) != code || !strings.Contains(fmt.Sprint(err)+out.String(), want) {
		t.Errorf("nvtopo %s: %v (code %d), want %d and %q:\n%s", strings.Join(args, " "), err, cli.ExitCode(err), code, want, out.String())
	}
}

func (d *firstDay) whatIsThere(t *testing.T) {
	t.Helper()
	d.says(t, "node-3", "top")
}

func (d *firstDay) fast(t *testing.T) {
	t.Helper()
	if out := d.says(t, "node-0", "top", "--min-link", "NV18"); strings.Contains(out, "node-2") {
		t.Errorf("a slow machine is listed:\n%s", out)
	}
}

func (d *firstDay) bestNow(t *testing.T) {
	t.Helper()
	d.says(t, "were it placed now (profile "+shippedProfile+")", "explain", "-n", "default", "job")
}

func (d *firstDay) defrag(t *testing.T) {
	t.Helper()
	d.says(t, "Groups of 8", "defrag")
}

func (d *firstDay) uninstall(t *testing.T) {
	t.Helper()
	before := d.get(t, "job")
	d.StopExporters("node-0", "node-1", "node-2") // as their pods would end
	if err := d.scheduler.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.says(t, "deleted NodeGPUTopology node-1", "uninstall")
	d.unchanged(t, before)
}

func (d *firstDay) runJob(t *testing.T) {
	t.Helper()
	d.create(t, gpuPod("job", shippedProfile, 4).Obj())
	d.bound(t, "job")
	out := d.says(t, "GB/S", "get", "pods", "-n", "default")
	if !strings.Contains(out, "NV18") || !strings.Contains(out, "job") {
		t.Errorf("get pods shows no link of the job:\n%s", out)
	}
}

// wait creates a pod with a request that no machine fulfils, and follows the next step.
func (d *firstDay) wait(t *testing.T) {
	t.Helper()
	pod := gpuPod("greedy", shippedProfile, 8).Annotation(podrequest.MinBandwidthKey, "500").Obj()
	d.create(t, pod)
	d.tried(t, "greedy")
	out := d.says(t, "NeverFits", "explain", "-n", "default", "greedy")
	_, next, _ := strings.Cut(out, "Next: set "+podrequest.MinBandwidthKey+" to ")
	value, _, ok := strings.Cut(next, " (")
	if value, _, _ = strings.Cut(value, "\n"); !ok && value == "" {
		t.Fatalf("no value is said:\n%s", out)
	}
	d.remove(t, "greedy")
	d.create(t, gpuPod("greedy", shippedProfile, 8).Annotation(podrequest.MinBandwidthKey, value).Obj())
	d.bound(t, "greedy")
	d.remove(t, "greedy")
}

func (d *firstDay) misspell(t *testing.T) {
	t.Helper()
	pod := gpuPod("misspelled", shippedProfile, 1).Annotation("nvtopo.dev/topology-polcy", "restricted").Obj()
	testkit.Eventually(t, waitLimit, "the API server warns", func(ctx context.Context) (bool, string) {
		_, err := d.user.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		heard := d.heard.take()
		return err == nil && strings.Contains(heard, "(near: nvtopo.dev/topology-policy) is not known"), fmt.Sprint(heard, err)
	})
	d.create(t, pod)
	d.wantEvent(t, "misspelled", "KeyIgnored", "nearest is nvtopo.dev/topology-policy")
	d.bound(t, "misspelled")
	d.says(t, "Ignored: Annotation nvtopo.dev/topology-polcy is not known; nearest is nvtopo.dev/topology-policy", "explain", "-n", "default", "misspelled")
	d.says(t, "ignored-key", "check")
	d.remove(t, "misspelled")
}

func (d *firstDay) units(t *testing.T) {
	t.Helper()
	d.create(t, gpuPod("unit", shippedProfile, 2).Annotation(podrequest.MinBandwidthKey, "100GB/s").Obj())
	d.bound(t, "unit")
	d.remove(t, "unit")
	pod := gpuPod("bits", shippedProfile, 2).Annotation(podrequest.MinBandwidthKey, "100G").Obj()
	if _, err := d.user.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); !errors.IsInvalid(err) && !errors.IsForbidden(err) {
		t.Errorf("100G is let in: %v", err)
	}
}

func (d *firstDay) checkConfig(t *testing.T) {
	t.Helper()
	program := testkit.Program(t, "nvtopo-scheduler")
	good := filepath.Join(t.TempDir(), "scheduler.yaml")
	text, err := manifests.FS.ReadFile(manifests.SchedulerConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(good, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := cli.New("nvtopo")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"check-config", "-f", good, "--program", program})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), shippedProfile) {
		t.Errorf("the shipped configuration: %v\n%s", err, out.String())
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, bytes.ReplaceAll(text, []byte("annotationWrite: "), []byte("annotationWrit: ")), 0o600); err != nil {
		t.Fatal(err)
	}
	d.fails(t, cli.ExitInput, "annotationWrit", "check-config", "-f", bad, "--program", program)
}

func (d *firstDay) deadExporter(t *testing.T) {
	t.Helper()
	d.StopExporters("node-3")
	d.renew(t, "node-3", 1)
	testkit.Eventually(t, waitLimit, "check names the node", func(context.Context) (bool, string) {
		out := d.nvtopo(t, "check")
		return strings.Contains(out, "stale-exporter") && strings.Contains(out, "node-3"), out
	})
	d.says(t, "stale", "top")
}

func (d *firstDay) hours(t *testing.T) {
	t.Helper()
	start := time.Now().UTC().Add(-2 * time.Hour).Format(time.RFC3339)
	d.objects.apply(t, decoded(t, strings.ReplaceAll(sessions, "START", `"`+start+`"`))...)
	out := d.says(t, "TENANT", "pool", "usage", "--since", "7d")
	if a, b := strings.Index(out, "team-a "), strings.Index(out, "team-b "); a < 0 || b < a {
		t.Errorf("the tenant with most hours is not first:\n%s", out)
	}
	d.fails(t, cli.ExitNoAnswer, "there is no tenant team-x", "pool", "usage", "--tenant", "team-x", "--kubeconfig", d.Kubeconfig())
}
