// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml/fakedriver"
)

const (
	pluginBinary   = "nvidia-device-plugin"
	exporterBinary = "nvtopo-exporter"
	// pciDevices is the folder in which NVIDIA's plugin reads the GPUs' NUMA nodes, regardless of its flags.
	pciDevices = "/sys/bus/pci/devices"
	// registryTimeout bounds the wait for the agent's socket.
	registryTimeout = 2 * time.Minute
)

// driverLibrary is the fake driver's library in the folder of programs.
func driverLibrary(bin string) string {
	return filepath.Join(bin, "fakedriver", fakedriver.LibraryName)
}

// checkNVIDIA returns an error for prerequisites that realnode.Check does not cover.
func (c *Config) checkNVIDIA() error {
	library := c.Library
	if library == "" {
		library = driverLibrary(c.Bin)
	}
	for _, file := range []string{filepath.Join(c.Bin, pluginBinary), filepath.Join(c.Bin, exporterBinary), library} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("NVIDIA's plugin needs what is not there (make node-programs): %w", err)
		}
	}
	return nil
}

// writeDriver writes the machine as its driver and kernel show it, and returns the binds that make the
// node see it in place of the machine's own.
func (l *Lab) writeDriver() (map[string]string, error) {
	m, err := machine.Lookup(Machine)
	if err != nil {
		return nil, fmt.Errorf("the simulated machine: %w", err)
	}
	if l.driverDir, err = os.MkdirTemp("", "nvtopo-driver-"); err != nil {
		return nil, fmt.Errorf("make the driver's folder: %w", err)
	}
	if l.Driver, err = fakedriver.Write(filepath.Join(l.driverDir, "machine"), l.Graph, m.PCIeGen); err != nil {
		return nil, fmt.Errorf("the simulated machine: %w", err)
	}
	if err := l.Driver.WriteRoot(l.driverRoot(), driverLibrary(l.cfg.Bin)); err != nil {
		return nil, fmt.Errorf("the driver's installation: %w", err)
	}
	if _, err := os.Stat(pciDevices); err != nil {
		return nil, nil //nolint:nilerr // a virtual machine without PCI: the plugin tells no NUMA nodes
	}
	return map[string]string{pciDevices: filepath.Join(l.Driver.Sysfs(), "bus/pci/devices")}, nil
}

// driverRoot returns the installation folder of the driver.
func (l *Lab) driverRoot() string { return filepath.Join(l.driverDir, "root") }

// startExporter starts the exporter as the DaemonSet would, with the rights of its service account, and
// waits until it has published the driver's data.
func (l *Lab) startExporter(ctx context.Context) error {
	kubeconfig := l.ExporterKubeconfig()
	if err := l.writeKubeconfig(ctx, exporterAccount, kubeconfig); err != nil {
		return err
	}
	var err error
	if l.exporterPort, err = devcluster.FreePort(); err != nil {
		return err
	}
	p := realnode.Program{Name: "exporter", Path: filepath.Join(l.cfg.Bin, exporterBinary)}
	p.Args = append(metricsAt(l.exporterPort), "--source=nvml", "--node-name="+l.cfg.Node, "--namespace="+Namespace,
		"--kubeconfig="+kubeconfig, "--interval=2s", "-v=2")
	if l.cfg.Library != "" {
		p.Args = append(p.Args, "--nvml-library="+l.cfg.Library)
	} else {
		p.Env = l.Driver.Env()
		p.Args = append(p.Args, "--nvml-library="+driverLibrary(l.cfg.Bin), "--sysfs-root="+l.Driver.Sysfs())
	}
	if l.Exporter, err = l.Node.Run(p); err != nil {
		return err
	}
	if err := l.waitPublished(ctx); err != nil {
		return err
	}
	if l.cfg.Library == "" {
		return nil
	}
	l.Graph, err = l.publishedGraph(ctx)
	return err
}

// ExporterKubeconfig returns the path of the exporter's kubeconfig.
func (l *Lab) ExporterKubeconfig() string { return filepath.Join(l.Node.Dir(), "exporter.kubeconfig") }

// waitPublished waits until the exporter has published the driver's data.
func (l *Lab) waitPublished(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, gpusTimeout, true, func(ctx context.Context) (bool, error) {
		if how := l.Exporter.Ended(); how != "" {
			return false, fmt.Errorf("it ended: %s", how)
		}
		var t *v1alpha1.NodeGPUTopology
		if t, last = l.Topology(ctx); last != nil {
			return false, nil //nolint:nilerr // not published yet
		}
		last = fmt.Errorf("conditions: %+v", t.Status.Conditions)
		return meta.IsStatusConditionTrue(t.Status.Conditions, v1alpha1.ConditionReady), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the exporter: %w", errors.Join(err, last))
	}
	return nil
}

// publishedGraph returns the graph of the node's GPUs as the exporter has published it.
func (l *Lab) publishedGraph(ctx context.Context) (*nvtopo.Graph, error) {
	t, err := l.Topology(ctx)
	if err != nil {
		return nil, err
	}
	graphs, err := t.Graphs()
	if err != nil {
		return nil, fmt.Errorf("what the exporter published: %w", err)
	}
	if graphs[Resource] == nil {
		return nil, errors.New("the exporter has published no GPUs of the resource " + Resource)
	}
	return graphs[Resource], nil
}

// startNVIDIAPlugin starts NVIDIA's plugin as its DaemonSet would. It finds the
// driver's library in the driver's installation, and where it only tries whether
// there is one by the linker's search path.
func (l *Lab) startNVIDIAPlugin(ctx context.Context) (err error) {
	root, libraries, env := "/", filepath.Dir(l.cfg.Library), []string(nil)
	if l.cfg.Library == "" {
		root = l.driverRoot()
		libraries, env = filepath.Join(root, "usr/lib64"), l.Driver.Env()
	}
	env = append(env, "LD_LIBRARY_PATH="+libraries, "NVIDIA_DRIVER_ROOT="+root, "NVIDIA_DEV_ROOT="+root, "DRIVER_ROOT_CTR_PATH="+root)
	if l.cfg.Agent {
		if l.Agent != nil { // and no pod, which is ready when its socket is there
			if err := l.Node.WaitSocket(ctx, RegistrySocket, l.Agent, registryTimeout); err != nil {
				return err
			}
		}
		env = append(env, "KUBELET_SOCKET="+RegistrySocket)
	}
	l.Plugin, err = l.Node.Run(realnode.Program{
		Name: "device-plugin", Path: filepath.Join(l.cfg.Bin, pluginBinary), Args: l.cfg.PluginArgs, Env: env,
	})
	return err
}

// RollOut puts the agent between kubelet and NVIDIA's plugin, which registered
// with kubelet until now, in the order of docs/node-agent.md.
func (l *Lab) RollOut(ctx context.Context) error {
	if err := l.startAgent(ctx); err != nil {
		return err
	}
	l.cfg.Agent = true
	return l.movePlugin(ctx)
}

// RollBack takes the agent away again: the agent first, then the plugin.
func (l *Lab) RollBack(ctx context.Context) error {
	if err := l.Agent.Stop(ctx); err != nil {
		return err
	}
	return l.MovePlugin(ctx)
}

// MovePlugin has NVIDIA's plugin register with kubelet, once the agent has ended.
func (l *Lab) MovePlugin(ctx context.Context) error {
	l.cfg.Agent = false
	return l.movePlugin(ctx)
}

// movePlugin restarts the plugin as a change of its DaemonSet does.
func (l *Lab) movePlugin(ctx context.Context) error {
	if err := l.Plugin.Stop(ctx); err != nil {
		return err
	}
	return l.startNVIDIAPlugin(ctx)
}
