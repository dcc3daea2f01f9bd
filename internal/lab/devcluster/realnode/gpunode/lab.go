// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml/fakedriver"
)

// Service accounts of the manifests, with the same rights as in a real cluster.
const (
	Namespace        = release.Namespace
	schedulerAccount = "nvtopo-scheduler"
	exporterAccount  = "nvtopo-exporter"
	agentAccount     = "nvtopo-node-agent"
)

// SchedulerName is the name of the shipped profile.
const SchedulerName = release.Profile

const (
	pollInterval = 50 * time.Millisecond
	// gpusTimeout bounds the wait until kubelet offers the plugin's GPUs.
	gpusTimeout = 3 * time.Minute
)

// Lab is a running cluster with one real node. Its methods may be used concurrently.
type Lab struct {
	Cluster   *devcluster.Cluster
	Client    kubernetes.Interface // an administrator's
	Dynamic   dynamic.Interface    // an administrator's
	Node      *realnode.Node
	Graph     *nvtopo.Graph
	Scheduler *devcluster.Scheduler
	Plugin    *realnode.Process  // the inner device plugin
	Agent     *realnode.Process  // nil without Config.Agent, and with Config.Chart
	Driver    *fakedriver.Driver // nil without Config.NVIDIA, and with Config.Library
	Exporter  *realnode.Process  // nil without Config.NVIDIA, and with Config.Chart

	cfg          Config
	podResources *kubelet.PodResources
	agentPort    int    // of the agent's metrics
	exporterPort int    // of the exporter's
	driverDir    string // of the machine as its fake driver shows it; empty without one
	installed    []InstalledGPU

	stopExporter context.CancelFunc
	exporter     sync.WaitGroup
}

// Start starts everything and waits until the scheduler sees a Ready node with
// all of its GPUs. The caller stops it. After an error there is nothing to stop.
func Start(ctx context.Context, cfg Config) (_ *Lab, err error) {
	if cfg.Node == "" {
		cfg.Node = "gpu-node"
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	if cfg.Chart != nil {
		if cfg.Library != "" {
			return nil, errors.New("the chart's pods know no driver but the fake one")
		}
		cfg.Agent, cfg.NVIDIA = true, true
	}
	cfg.NVIDIA = cfg.NVIDIA || cfg.Library != ""
	if cfg.Bin, err = filepath.Abs(cfg.Bin); err != nil {
		return nil, fmt.Errorf("the folder of programs: %w", err)
	}
	if err := realnode.Check(cfg.Bin); err != nil {
		return nil, err
	}
	if cfg.NVIDIA {
		if err := cfg.checkNVIDIA(); err != nil {
			return nil, err
		}
	}
	l := &Lab{cfg: cfg, stopExporter: func() {}}
	defer func() { //nolint:contextcheck // what was started has to end although ctx may be over
		if err != nil {
			err = errors.Join(err, l.Stop())
		}
	}()
	if err := l.findGPUs(ctx); err != nil {
		return nil, err
	}
	for _, s := range l.steps() {
		if s.left {
			continue
		}
		cfg.Progress(s.what)
		if err := s.do(ctx); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// findGPUs sets the node's GPUs: the simulated machine's, or the driver's.
func (l *Lab) findGPUs(ctx context.Context) (err error) {
	if l.cfg.Library != "" {
		l.installed, err = Installed(ctx)
		return err
	}
	if runtime.NumCPU() < 2 {
		return errors.New("two simulated NUMA nodes need two CPUs")
	}
	l.Graph, err = Graph(l.cfg.Node)
	return err
}

// step is a part of the start.
type step struct {
	what string
	do   func(context.Context) error
	left bool // it is left out
}

func (l *Lab) steps() []step {
	if l.cfg.Chart != nil {
		return l.chartSteps()
	}
	publish := step{what: "publishing the link graph of a simulated " + Machine, do: l.publish}
	plugin := step{what: "starting the device plugin", do: l.startPlugin}
	agent := step{what: "starting the node agent", do: l.startAgent, left: !l.cfg.Agent}
	register := []step{plugin, agent}
	if l.cfg.NVIDIA {
		publish = step{what: "starting the exporter on the driver of a simulated " + Machine, do: l.startExporter}
		if l.cfg.Library != "" {
			publish.what = "starting the exporter on the machine's driver"
		}
		plugin = step{what: "starting NVIDIA's device plugin", do: l.startNVIDIAPlugin}
		register = []step{agent, plugin} // it ends if the agent's folder does not exist
	}
	return slices.Concat([]step{
		{what: "starting etcd and kube-apiserver, installing the manifests", do: l.startCluster},
		{what: "starting containerd and " + cmp.Or(l.cfg.KubeletProgram, "kubelet "+kubeVersion), do: l.startNode},
		publish,
	}, register, []step{
		{what: "starting the scheduler", do: l.startScheduler},
		{what: "waiting for the node's GPUs", do: l.WaitGPUs},
		{what: "waiting until the agent vouches for the node", do: l.WaitEnforced, left: !l.cfg.Agent},
	})
}

// kubeVersion is the Kubernetes version of tools/kubelet/go.mod.
const kubeVersion = "1.35.8"

func (l *Lab) startCluster(ctx context.Context) error {
	if err := l.newCluster(ctx, devcluster.Config{Log: l.cfg.Log, Controllers: l.cfg.Controllers}); err != nil {
		return err
	}
	return l.Cluster.InstallManifests(ctx)
}

func (l *Lab) newCluster(ctx context.Context, cfg devcluster.Config) (err error) {
	l.Cluster, err = devcluster.Start(ctx, cfg)
	if err != nil {
		return fmt.Errorf("start a cluster: %w", err)
	}
	if l.Client, err = kubernetes.NewForConfig(l.Cluster.RESTConfig()); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if l.Dynamic, err = dynamic.NewForConfig(l.Cluster.RESTConfig()); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return nil
}

func (l *Lab) startNode(ctx context.Context) (err error) {
	cfg := realnode.Config{
		Name: l.cfg.Node, Bin: l.cfg.Bin, Dir: l.cfg.Dir, KubeletProgram: l.cfg.KubeletProgram, Kubelet: l.cfg.Kubelet, NRI: l.cfg.NRI, Log: l.cfg.Log,
	}
	if l.cfg.NVIDIA && l.cfg.Library == "" {
		if cfg.Binds, err = l.writeDriver(); err != nil {
			return err
		}
	}
	if l.cfg.Chart != nil {
		spec, err := l.writeRuntime(ctx)
		if err != nil {
			return err
		}
		cfg.Network, cfg.Handlers = true, map[string]string{runtimeClass: spec}
		if cfg.Kubelet == nil {
			cfg.Kubelet = kubeletAsInACluster()
		}
		for _, name := range images {
			cfg.Images = append(cfg.Images, filepath.Join(l.cfg.Chart.Images, name))
		}
	}
	l.Node, err = realnode.Start(ctx, l.Cluster, cfg)
	if err != nil {
		return err
	}
	if l.podResources, err = kubelet.Dial(l.Node.Path(realnode.PodResourcesSocket)); err != nil {
		return fmt.Errorf("dial the PodResources API: %w", err)
	}
	return nil
}

// publish runs the exporter until Stop, as the DaemonSet would on the node.
func (l *Lab) publish(ctx context.Context) error {
	cfg, err := l.Cluster.NodeBoundConfig(ctx, Namespace, exporterAccount, l.cfg.Node)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make the exporter's client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make the exporter's client: %w", err)
	}
	e, err := exporter.New(exporter.Config{NodeName: l.cfg.Node, Namespace: Namespace}, exporter.Static(l.Graph), kube, dyn)
	if err != nil {
		return fmt.Errorf("make the exporter: %w", err)
	}
	if err := e.PublishOnce(ctx); err != nil {
		return fmt.Errorf("publish the link graph: %w", err)
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.stopExporter = cancel
	l.exporter.Go(func() {
		if err := e.Run(runCtx); err != nil && l.cfg.Log != nil {
			fmt.Fprintf(l.cfg.Log, "exporter: %v\n", err)
		}
	})
	return nil
}

func (l *Lab) startScheduler(ctx context.Context) error {
	config, err := manifests.FS.ReadFile(manifests.SchedulerConfigPath)
	if err != nil {
		return fmt.Errorf("read the shipped configuration: %w", err)
	}
	if l.cfg.Scheduler != nil {
		fields := map[string]any{}
		if err := yaml.Unmarshal(config, &fields); err != nil {
			return fmt.Errorf("read the shipped configuration: %w", err)
		}
		l.cfg.Scheduler(fields)
		if config, err = yaml.Marshal(fields); err != nil {
			return fmt.Errorf("write the scheduler's configuration: %w", err)
		}
	}
	l.Scheduler, err = l.Cluster.StartScheduler(ctx, devcluster.SchedulerOptions{
		Binary: filepath.Join(l.cfg.Bin, "nvtopo-scheduler"), Config: config, ServiceAccount: Namespace + "/" + schedulerAccount,
	})
	return err
}

// WaitGPUs waits until kubelet offers every GPU.
func (l *Lab) WaitGPUs(ctx context.Context) error {
	want := int64(l.Graph.Len())
	var got string
	err := wait.PollUntilContextTimeout(ctx, pollInterval, gpusTimeout, true, func(ctx context.Context) (bool, error) {
		node, err := l.Client.CoreV1().Nodes().Get(ctx, l.cfg.Node, metav1.GetOptions{})
		if err != nil {
			got = err.Error()
			return false, nil //nolint:nilerr // asked again
		}
		q := node.Status.Allocatable[v1.ResourceName(Resource)]
		got = q.String() + " GPUs"
		return q.Value() == want, nil
	})
	if err != nil {
		return fmt.Errorf("wait until kubelet offers %d GPUs: %w; last seen: %s", want, err, got)
	}
	return nil
}

// WaitDevices waits until kubelet itself has every GPU as a healthy device. The Node shows that later,
// and for a while its state before a restart of the agent or plugin.
func (l *Lab) WaitDevices(ctx context.Context) error {
	var got string
	err := wait.PollUntilContextTimeout(ctx, pollInterval, gpusTimeout, true, func(ctx context.Context) (bool, error) {
		all, err := l.podResources.Allocatable(ctx)
		if err != nil {
			got = err.Error()
			return false, nil //nolint:nilerr // asked again
		}
		got = fmt.Sprintf("%d GPUs", len(all[Resource]))
		return len(all[Resource]) == l.Graph.Len(), nil
	})
	if err != nil {
		return fmt.Errorf("wait until kubelet has %d GPUs: %w; last seen: %s", l.Graph.Len(), err, got)
	}
	return nil
}

// Topology returns the node's object as published by the exporter and the agent.
func (l *Lab) Topology(ctx context.Context) (*v1alpha1.NodeGPUTopology, error) {
	u, err := l.Dynamic.Resource(v1alpha1.GroupVersionResource).Get(ctx, l.cfg.Node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the topology of %s: %w", l.cfg.Node, err)
	}
	t := &v1alpha1.NodeGPUTopology{}
	if err := apiruntime.DefaultUnstructuredConverter.FromUnstructured(u.Object, t); err != nil {
		return nil, fmt.Errorf("read the topology of %s: %w", l.cfg.Node, err)
	}
	return t, nil
}

// WaitEnforced waits until the agent has published that containers get the
// chosen GPUs, and holds its Lease.
func (l *Lab) WaitEnforced(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, gpusTimeout, true, func(ctx context.Context) (bool, error) {
		if l.Agent != nil && l.Agent.Ended() != "" {
			return false, fmt.Errorf("it ended: %s", l.Agent.Ended())
		}
		t, err := l.Topology(ctx)
		if err != nil {
			last = err
			return false, nil //nolint:nilerr // asked again
		}
		if !meta.IsStatusConditionTrue(t.Status.Conditions, v1alpha1.ConditionEnforced) {
			last = fmt.Errorf("conditions: %+v", t.Status.Conditions)
			return false, nil
		}
		_, last = l.Client.CoordinationV1().Leases(Namespace).Get(ctx, nodelease.AgentPrefix+l.cfg.Node, metav1.GetOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the agent: %w", errors.Join(err, last))
	}
	return nil
}

// Stop ends the node, then the cluster.
func (l *Lab) Stop() error {
	var errs []error
	l.stopExporter()
	l.exporter.Wait()
	if l.podResources != nil {
		errs = append(errs, l.podResources.Close())
	}
	if l.Node != nil {
		errs = append(errs, l.Node.Stop())
	}
	if l.Cluster != nil {
		errs = append(errs, l.Cluster.Stop())
	}
	if l.driverDir != "" {
		errs = append(errs, os.RemoveAll(l.driverDir))
	}
	return errors.Join(errs...)
}
