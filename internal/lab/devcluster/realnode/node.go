// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// stopTimeout bounds Stop.
const stopTimeout = 3 * time.Minute

// nodes counts the nodes of this process, to name their cgroups apart.
var nodes atomic.Int64 // a name has to be unique in the process

// Node is a running node. Its methods may be used concurrently.
type Node struct {
	cfg    Config
	dir    string // on the machine: logs, configuration
	owned  bool   // dir is ours to remove
	inside string // a folder of the node alone: sockets, images, containers
	cgroup string // name of the cgroup of all containers
	jail   *jail
	client kubernetes.Interface

	network *network // nil without Config.Network

	kubelet, containerd *Process
	kubeconfig          string

	mu      sync.Mutex
	stopped bool // guarded by mu
}

// Start starts a node and waits until it is Ready. ctx limits the start, not the node's life: call Stop
// when done with it, before the cluster's Stop. After an error there is nothing to stop.
func Start(ctx context.Context, cluster *devcluster.Cluster, cfg Config) (_ *Node, err error) {
	dir, owned, err := cfg.prepare()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, dir: dir, owned: owned, inside: filepath.Join(dir, "node"),
		cgroup: cgroupPrefix + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(nodes.Add(1), 10),
	}
	defer func() { //nolint:contextcheck // what was started has to end although ctx may be over
		if err != nil {
			err = errors.Join(fmt.Errorf("start node %s: %w", cfg.Name, err), n.Stop())
		}
	}()
	if n.client, err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if err := removeCgroups(ctx, abandoned); err != nil {
		return nil, err
	}
	if err := makeCgroup(n.cgroup); err != nil {
		return nil, err
	}
	for _, d := range []string{n.inside, n.logDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
	}
	n.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := cluster.WriteKubeconfig(n.kubeconfig); err != nil {
		return nil, err
	}
	what := setup{Dir: n.inside, Binds: cfg.Binds}
	if cfg.Network {
		what.Addresses = []string{serviceAddress, nodeAddress}
	}
	if n.jail, err = startJail(what, cfg.Log); err != nil {
		return nil, err
	}
	if cfg.Network {
		if n.network, err = startNetwork(n.jail.pid, cluster.RESTConfig().Host); err != nil {
			return nil, err
		}
	}
	if err := n.startContainerd(ctx); err != nil {
		return nil, err
	}
	if err := n.startKubelet(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// Name returns the name of the Node object.
func (n *Node) Name() string { return n.cfg.Name }

// Kubelet returns the node's kubelet.
func (n *Node) Kubelet() *Process { return n.kubelet }

// Kubeconfig returns the path of an administrator's kubeconfig; it is the same on the node and outside.
func (n *Node) Kubeconfig() string { return n.kubeconfig }

// Path returns the path outside the node of a path of the node: to read files and to dial unix sockets.
func (n *Node) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(n.jail.pid), "root", path)
}

// Private returns a folder of the node in which its programs may write; it is gone with the node.
func (n *Node) Private(name string) string { return filepath.Join(n.inside, name) }

// Dir returns the folder of the node's logs and configuration, the same on the node and outside.
func (n *Node) Dir() string { return n.dir }

// Log returns the path of the log of a program.
func (n *Node) Log(program string) string { return n.logPath(program) }

func (n *Node) logDir() string             { return filepath.Join(n.dir, "logs") }
func (n *Node) logPath(name string) string { return filepath.Join(n.logDir(), name+".log") }

// environment returns the environment of every program on the node.
func (n *Node) environment() []string {
	return []string{
		"PATH=" + n.cfg.Bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + n.inside, "TMPDIR=" + n.inside, "NO_PROXY=*",
	}
}

// Stop ends every process of the node and removes its cgroups, and the folder
// if Start made it. It may be called more than once.
func (n *Node) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return nil
	}
	n.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var errs []error
	if n.network != nil {
		n.network.stop()
	}
	if n.jail != nil {
		errs = append(errs, n.jail.kill())
	}
	errs = append(errs, removeCgroups(ctx, func(name string) bool { return name == n.cgroup }))
	if n.owned {
		if err := os.RemoveAll(n.dir); err != nil {
			errs = append(errs, fmt.Errorf("remove the node's folder: %w", err))
		}
	} else if err := os.Remove(n.inside); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("remove a mount point: %w", err))
	}
	return errors.Join(errs...)
}
