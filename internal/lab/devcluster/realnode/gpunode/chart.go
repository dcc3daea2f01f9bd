// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml/fakedriver"
)

// Chart configures how Helm installs nvtopo.
type Chart struct {
	// Folder is the path of the chart.
	Folder string
	// Images is the folder of images as `make images` leaves it, with the tag dev.
	Images string
	// Values replace the chart's.
	Values map[string]any
}

// images are the images of the chart's pods.
var images = []string{"nvtopo-scheduler", "nvtopo-exporter", "nvtopo-node-agent", "nvtopo"}

const (
	helmBinary = "helm"
	// Release is the name of Helm's release.
	Release = "nvtopo"
	// runtimeClass is the class that NVIDIA's GPU operator makes for its container toolkit.
	runtimeClass = "nvidia"
	// presence is the label that NVIDIA's GPU feature discovery gives to nodes.
	presence = "nvidia.com/gpu.present"
	// helmTimeout is how long Helm waits for the pods, in its own notation. They start within
	// seconds on an idle machine.
	helmTimeout = "5m"
)

// chartSteps returns the steps of a Lab whose scheduler, exporter and agent are pods of the chart.
func (l *Lab) chartSteps() []step {
	return []step{
		{what: "starting etcd, kube-apiserver and controllers", do: l.startEmptyCluster},
		{what: "starting containerd with the images, and kubelet " + kubeVersion, do: l.startNode},
		{what: "labelling the node as NVIDIA's programs do", do: l.prepareForGPUs},
		{what: "starting a kube-scheduler", do: l.startKubeScheduler},
		{what: "installing the chart, and waiting for its pods", do: l.installChart},
		{what: "starting NVIDIA's device plugin", do: l.startNVIDIAPlugin},
		{what: "waiting for the node's GPUs", do: l.WaitGPUs},
		{what: "waiting until the agent vouches for the node", do: l.WaitEnforced},
	}
}

func (l *Lab) startEmptyCluster(ctx context.Context) error {
	return l.newCluster(ctx, devcluster.Config{Log: l.cfg.Log, Controllers: true, ServiceAccounts: true})
}

// kubeletAsInACluster returns the fields of kubelet's configuration that make it authorize requests at
// the API server, and reachable at the node's address.
func kubeletAsInACluster() map[string]any {
	return map[string]any{
		"address":        "0.0.0.0", // of the node's own network
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}},
		"authorization":  map[string]any{"mode": "Webhook"},
	}
}

// prepareForGPUs creates the objects of NVIDIA's GPU operator in a cluster.
func (l *Lab) prepareForGPUs(ctx context.Context) error {
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: runtimeClass}, Handler: runtimeClass}
	if _, err := l.Client.NodeV1().RuntimeClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make RuntimeClass %s: %w", runtimeClass, err)
	}
	label := fmt.Sprintf(`{"metadata": {"labels": {%q: "true"}}}`, presence)
	if _, err := l.Client.CoreV1().Nodes().Patch(ctx, l.cfg.Node, types.MergePatchType, []byte(label), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label node %s: %w", l.cfg.Node, err)
	}
	return nil
}

// startKubeScheduler starts a scheduler for the pods that name none, the project's among them: the
// project's program with kube-scheduler's own configuration.
func (l *Lab) startKubeScheduler(ctx context.Context) (err error) {
	l.Scheduler, err = l.Cluster.StartScheduler(ctx, devcluster.SchedulerOptions{Binary: filepath.Join(l.cfg.Bin, "nvtopo-scheduler")})
	return err
}

// installChart installs the chart as docs/install.md describes.
func (l *Lab) installChart(ctx context.Context) error {
	text, err := manifests.FS.ReadFile("core/namespace.yaml")
	if err != nil {
		return fmt.Errorf("read the namespace: %w", err)
	}
	namespace := &v1.Namespace{}
	if err := yaml.UnmarshalStrict(text, namespace); err != nil {
		return fmt.Errorf("read the namespace: %w", err)
	}
	if _, err := l.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the namespace: %w", err)
	}
	values, err := yaml.Marshal(l.cfg.Chart.Values)
	if err != nil {
		return fmt.Errorf("write the chart's values: %w", err)
	}
	path := filepath.Join(l.Node.Dir(), "values.yaml")
	if err := os.WriteFile(path, values, 0o600); err != nil {
		return fmt.Errorf("write the chart's values: %w", err)
	}
	_, err = l.Helm(ctx, "install", Release, l.cfg.Chart.Folder, "--values", path, "--set", "image.pullPolicy=Never", "--wait", "--timeout", helmTimeout)
	if err != nil {
		return errors.Join(err, l.explainPods(ctx))
	}
	return nil
}

// explainPods returns an error with the container state of every pod of the chart, and the end of its
// log.
func (l *Lab) explainPods(ctx context.Context) error {
	const tail = 2000 // bytes
	pods, err := l.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	var out []error
	for i := range pods.Items {
		p := &pods.Items[i]
		out = append(out, fmt.Errorf("pod %s: %s %v", p.Name, p.Status.Phase, p.Status.ContainerStatuses))
		logs, _ := filepath.Glob(l.Node.Path("/var/log/pods/" + Namespace + "_" + p.Name + "_*/*/*.log")) // only to explain
		for _, log := range logs {
			text, _ := os.ReadFile(log) // likewise
			out = append(out, fmt.Errorf("%s:\n%s", filepath.Base(filepath.Dir(log)), text[max(0, len(text)-tail):]))
		}
	}
	return errors.Join(out...)
}

// Helm runs Helm's program on the cluster, as its administrator, and returns its output.
func (l *Lab) Helm(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(l.cfg.Bin, helmBinary), args...)
	cmd.Env = append(os.Environ(), "HOME="+l.Node.Dir(), "KUBECONFIG="+l.Cluster.Kubeconfig(), "HELM_NAMESPACE="+Namespace)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w\n%s", args[0], err, out)
	}
	return string(out), nil
}

// writeRuntime writes the OCI specification that containers of the class nvidia begin with, and returns
// its path: containerd's own, with the additions of NVIDIA's container toolkit, the driver's library and,
// in place of device files, the machine as the fake library and the kernel show it.
func (l *Lab) writeRuntime(ctx context.Context) (string, error) {
	printed, err := exec.CommandContext(ctx, filepath.Join(l.cfg.Bin, "ctr"), "oci", "spec").Output()
	if err != nil {
		return "", fmt.Errorf("ask for containerd's OCI specification: %w", err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(printed, &spec); err != nil {
		return "", fmt.Errorf("read containerd's OCI specification: %w", err)
	}
	process, ok := spec["process"].(map[string]any)
	mounts, ok2 := spec["mounts"].([]any)
	if !ok || !ok2 {
		return "", errors.New("containerd's OCI specification has no process or no mounts")
	}
	machine := filepath.Dir(l.Driver.Sysfs())
	// The runtime mounts the cgroups there.
	if err := os.MkdirAll(filepath.Join(l.Driver.Sysfs(), "fs/cgroup"), 0o755); err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	process["env"] = l.Driver.Env()
	for i, m := range mounts {
		if mount, ok := m.(map[string]any); ok && mount["destination"] == "/sys" {
			mounts[i] = bound(l.Driver.Sysfs(), "/sys")
		}
	}
	spec["mounts"] = append(mounts, bound(machine, machine), bound(driverLibrary(l.cfg.Bin), "/usr/lib64/"+fakedriver.LibraryName))
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("write the OCI specification: %w", err)
	}
	path := filepath.Join(l.driverDir, "runtime.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("write the OCI specification: %w", err)
	}
	return path, nil
}

// bound is a mount of a file or folder of the node, for reading.
func bound(source, destination string) map[string]any {
	return map[string]any{"type": "bind", "source": source, "destination": destination, "options": []string{"rbind", "ro"}}
}
