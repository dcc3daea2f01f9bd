// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/manifests"
)

// LabelGPUPresent is the label that NVIDIA's GPU feature discovery gives to nodes with GPUs: the shipped
// DaemonSets run there.
const LabelGPUPresent = "nvidia.com/gpu.present"

const (
	chartRelease = "nvtopo"
	// schedulerDeployment is the name of the scheduler's Deployment.
	schedulerDeployment = "nvtopo-scheduler"
	// runtimeClass is the RuntimeClass that NVIDIA's GPU Operator creates, which the exporter's pods name.
	runtimeClass = "nvidia"
	// namespaceFile in the cluster's folder is the manifest of the namespace.
	namespaceFile = "namespace.yaml"
	// helmTimeout limits Helm's wait for the simulated pods.
	helmTimeout = "3m"
)

// ChartOptions configures how Helm installs nvtopo. On simulated nodes its pods are reported as running
// and no container runs; while a workload exists, and the scheduler's has replicas, [Cluster.Follow] runs
// the program beside the cluster.
type ChartOptions struct {
	Helm      string // path of Helm's program
	Chart     string // the chart's folder
	Values    string // file of values; empty for none
	Scheduler string // path of the scheduler
	// SchedulerAccount ("namespace/name") is the chart's, and SchedulerArgs are further flags.
	SchedulerAccount string
	SchedulerArgs    []string
	// Progress receives one line when the chart's scheduler stops running, with the cause, and one when it
	// runs again.
	Progress io.Writer
}

// command returns the command that installs the chart, or updates an installation to its values.
func (o *ChartOptions) command() []string {
	out := []string{o.Helm, "upgrade", "--install", chartRelease, o.Chart, "--namespace", systemNamespace, "--wait", "--timeout", helmTimeout}
	if o.Values != "" {
		out = append(out, "--values", o.Values)
	}
	return out
}

// Commands returns the two command lines that install the chart as [Cluster.InstallChart] did, for a
// shell with the KUBECONFIG of the cluster whose folder is dir. The namespace comes first: Helm keeps its
// record in it, and an uninstall removes it.
func (o *ChartOptions) Commands(dir string) [2]string {
	return [2]string{shellLine("kubectl", "apply", "-f", filepath.Join(dir, namespaceFile)), shellLine(o.command()...)}
}

// plainWord matches a word that needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./=:,@%+-]+$`)

// shellLine returns a command as it is typed into a shell.
func shellLine(words ...string) string {
	for i, w := range words {
		if !plainWord.MatchString(w) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// InstallChart follows docs/install.md, with the nodes present: it creates the namespace and the objects
// of NVIDIA's GPU Operator, starts a kube-scheduler for the chart's own pods, and has Helm install the
// chart and wait for them.
func (c *Cluster) InstallChart(ctx context.Context, o *ChartOptions) error {
	kube, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: runtimeClass}, Handler: runtimeClass}
	if _, err := kube.NodeV1().RuntimeClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make RuntimeClass %s: %w", runtimeClass, err)
	}
	text, err := manifests.FS.ReadFile("core/namespace.yaml")
	if err != nil {
		return fmt.Errorf("read the namespace: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, namespaceFile), text, 0o600); err != nil {
		return fmt.Errorf("keep the namespace's manifest: %w", err)
	}
	objects, err := decodeObjects(text)
	if err != nil {
		return fmt.Errorf("read the namespace: %w", err)
	}
	a, err := newApplier(c)
	if err != nil {
		return err
	}
	for _, ns := range objects {
		if err := a.apply(ctx, ns); err != nil {
			return err
		}
	}
	// The project's scheduler with kube-scheduler's own configuration acts as one.
	if _, err := c.StartScheduler(ctx, SchedulerOptions{Binary: o.Scheduler}); err != nil {
		return fmt.Errorf("start a kube-scheduler: %w", err)
	}
	helm := o.command()
	cmd := exec.CommandContext(ctx, helm[0], helm[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+c.Dir(), "KUBECONFIG="+c.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm upgrade --install: %w\n%s", err, out)
	}
	return a.waitPolicies(ctx)
}

// programs reports which workloads are in the cluster.
type programs struct {
	exporter, agent bool
	config          schedulerConfig // empty where the scheduler is not installed
}

// installedPrograms looks up the shipped workloads.
func installedPrograms(ctx context.Context, kube kubernetes.Interface) (*programs, error) {
	p := &programs{}
	for name, is := range map[string]*bool{"nvtopo-exporter": &p.exporter, "nvtopo-node-agent": &p.agent} {
		d, err := kube.AppsV1().DaemonSets(systemNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("get DaemonSet %s: %w", name, err)
		}
		*is = err == nil && d.DeletionTimestamp == nil
	}
	d, err := kube.AppsV1().Deployments(systemNamespace).Get(ctx, schedulerDeployment, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && d.DeletionTimestamp != nil:
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("get Deployment %s: %w", schedulerDeployment, err)
	}
	p.config, err = schedulerConfigOf(ctx, kube, &d.Spec.Template.Spec)
	p.config.scaledDown = d.Spec.Replicas != nil && *d.Spec.Replicas == 0
	return p, err
}

// schedulerConfigOf returns the configuration that the scheduler's pod reads.
func schedulerConfigOf(ctx context.Context, kube kubernetes.Interface, pod *v1.PodSpec) (schedulerConfig, error) {
	for i := range pod.Containers {
		for _, arg := range pod.Containers[i].Args {
			file, ok := strings.CutPrefix(arg, "--config=")
			if !ok {
				continue
			}
			for _, v := range pod.Volumes {
				if v.ConfigMap == nil {
					continue
				}
				m, err := kube.CoreV1().ConfigMaps(systemNamespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
				if err != nil {
					return schedulerConfig{}, fmt.Errorf("get ConfigMap %s: %w", v.ConfigMap.Name, err)
				}
				if text := m.Data[path.Base(file)]; text != "" {
					return schedulerConfig{file: file, text: text}, nil
				}
			}
		}
	}
	return schedulerConfig{}, errors.New("the Deployment nvtopo-scheduler names no configuration in a ConfigMap")
}
