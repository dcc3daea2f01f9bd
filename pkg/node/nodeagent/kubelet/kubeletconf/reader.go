// SPDX-License-Identifier: Apache-2.0

package kubeletconf

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Files below kubelet's root directory.
const (
	cpuStateFile    = "cpu_manager_state"
	memoryStateFile = "memory_manager_state"
)

const (
	// defaultInterval is the time between two readings of the configuration. It only changes when kubelet
	// restarts, and Trigger reports a restart.
	defaultInterval = 5 * time.Minute
	// statePoll is the period of reading the managers' state, if their policy keeps one: it changes with
	// every pod, and the next placement depends on it.
	statePoll = 5 * time.Second
	// nodeTimeout limits one reading of the Node.
	nodeTimeout = 10 * time.Second
	// nodeDelay is the time after a start, or a restart of kubelet, at which the configuration is read
	// again: kubelet writes its version into the Node some seconds after it has started.
	nodeDelay = time.Minute
	// firstRetry is the delay after a failure; it doubles up to the interval.
	firstRetry = time.Second
	// maxCPUList is the limit of the NodeGPUTopology's schema for a CPU list, in characters.
	maxCPUList = 1024
)

// Config locates kubelet's configuration.
type Config struct {
	Node string // name of the Node
	// File is a KubeletConfiguration file; if empty, kubelet's /configz is read.
	File string
	// GetNode reads the Node, which has kubelet's version, and its address for /configz.
	GetNode func(ctx context.Context) (*v1.Node, error)
	// REST holds the token that is sent to kubelet, and the cluster's certificate authority.
	REST *rest.Config
	// CAFile holds more certificates to verify kubelet's serving certificate with, in addition to the
	// cluster's authority and to kubelet's self-made certificate below RootDir.
	CAFile string
	// RootDir is kubelet's root directory, /var/lib/kubelet.
	RootDir string
	// Interval between readings; 0 means five minutes.
	Interval time.Duration
	// Allocatable returns the CPUs that kubelet assigns to containers, from PodResources. Online returns the
	// kernel's online CPUs. The difference is the reserved CPUs when the static policy chooses them itself.
	Allocatable func(ctx context.Context) (nvtopo.CPUSet, error)
	Online      func() (nvtopo.CPUSet, error)
	// Unaligned lists the resources whose NUMA nodes are hidden from kubelet.
	Unaligned func() []string
}

// Reader keeps the settings and assignments of the node's kubelet up to date.
type Reader struct {
	cfg      Config
	clk      clock.WithTicker
	wake     chan struct{}
	onChange func(*v1alpha1.Kubelet)

	base     *v1alpha1.Kubelet // the configuration, nil until read; only Run's goroutine uses it
	baseErr  error             // only Run's goroutine uses it
	stateErr error             // only Run's goroutine uses it

	mu        sync.Mutex
	current   *v1alpha1.Kubelet                      // guarded by mu; immutable once stored
	exclusive map[types.UID]map[string]nvtopo.CPUSet // guarded by mu; immutable once stored
	problem   error                                  // guarded by mu
}

// New returns a Reader, or an error if cfg is incomplete. Nothing is read before Run.
func New(cfg Config, clk clock.WithTicker) (*Reader, error) {
	if cfg.Node == "" || cfg.RootDir == "" || cfg.GetNode == nil {
		return nil, errors.New("kubelet configuration: a node name, a way to read the Node and kubelet's root directory are needed")
	}
	if cfg.File == "" && cfg.REST == nil {
		return nil, errors.New("kubelet configuration: asking configz needs credentials")
	}
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	return &Reader{cfg: cfg, clk: clk, wake: make(chan struct{}, 1)}, nil
}

// OnChange sets f, which Run's goroutine calls with every new reading. It must be called before Run.
func (r *Reader) OnChange(f func(*v1alpha1.Kubelet)) { r.onChange = f }

// Trigger makes Run read everything again soon; the agent calls it when kubelet has restarted. It never
// blocks.
func (r *Reader) Trigger() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Current returns the last reading, or nil before the first. It must not be changed.
func (r *Reader) Current() *v1alpha1.Kubelet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// Problem returns an error that names the values missing from the last reading, or nil.
func (r *Reader) Problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem
}

// CPUs returns the CPUs that kubelet assigned exclusively to one container, in the kernel's list format,
// or "" if it has none or they are not known.
func (r *Reader) CPUs(uid types.UID, container string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exclusive[uid][container].String()
}

// Run reads until ctx ends. While kubelet does not respond, the last reading stays valid: kubelet admits
// no pod in that time, and it is read again after its restart.
func (r *Reader) Run(ctx context.Context) error {
	poll := r.clk.NewTicker(statePoll)
	defer poll.Stop()
	retry, interval := firstRetry, min(nodeDelay, r.cfg.Interval) // this process may have started before kubelet
	next := r.clk.Now()
	for {
		if !r.clk.Now().Before(next) {
			if err := r.refresh(ctx); err != nil {
				next, retry = r.clk.Now().Add(retry), min(2*retry, r.cfg.Interval)
			} else {
				next, retry, interval = r.clk.Now().Add(interval), firstRetry, r.cfg.Interval
			}
		} else {
			r.publish(ctx)
		}
		// A retry may be due before the next poll.
		due := r.clk.NewTimer(max(next.Sub(r.clk.Now()), 0))
		select {
		case <-ctx.Done():
			due.Stop()
			return nil
		case <-r.wake:
			next, retry, interval = r.clk.Now(), firstRetry, min(nodeDelay, r.cfg.Interval)
		case <-poll.C():
		case <-due.C():
		}
		due.Stop()
	}
}

// refresh reads the configuration and then the managers' state. An error means that a value is missing
// and should be read again soon.
func (r *Reader) refresh(ctx context.Context) error {
	k, err := r.configuration(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if k != nil {
		r.base = k
	}
	r.baseErr = err
	r.publish(ctx)
	return err
}

// configuration reads the settings that are fixed while kubelet runs. It returns both a value and an
// error if only the version or the reserved CPUs are unknown, or options are left out.
func (r *Reader) configuration(ctx context.Context) (*v1alpha1.Kubelet, error) {
	node, nodeErr := r.getNode(ctx)
	if nodeErr != nil && r.cfg.File == "" {
		return nil, fmt.Errorf("configz: address of kubelet: %w", nodeErr)
	}
	s, err := r.source(ctx, node)
	if err != nil {
		return nil, err
	}
	k, err := s.kubelet()
	if k != nil {
		var versionErr error
		k.Version, versionErr = r.version(node, nodeErr)
		err = errors.Join(err, versionErr)
	}
	if k != nil && k.CPUManagerPolicy == CPUPolicyStatic && k.ReservedCPUs == "" {
		var reservedErr error
		k.ReservedCPUs, reservedErr = r.reserved(ctx, s)
		err = errors.Join(err, reservedErr)
	}
	return k, err
}

// getNode reads the Node within nodeTimeout: a configuration file must not wait for the API server.
func (r *Reader) getNode(ctx context.Context) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return r.cfg.GetNode(ctx)
}

// version returns kubelet's version, or the last known one if the Node does not have it.
func (r *Reader) version(node *v1.Node, err error) (string, error) {
	var v string
	if err == nil {
		v, err = nodeVersion(node)
	}
	if err == nil {
		return v, nil
	}
	if r.base != nil {
		v = r.base.Version
	}
	return v, fmt.Errorf("version of kubelet: %w", err)
}

// publish combines the last configuration with the managers' current state. Without a static policy,
// managers have no state.
func (r *Reader) publish(ctx context.Context) {
	defer r.report(ctx)
	if r.base == nil {
		return
	}
	k := r.base.DeepCopy()
	var exclusive map[types.UID]map[string]nvtopo.CPUSet
	var cpuErr, memoryErr error
	if k.CPUManagerPolicy == CPUPolicyStatic {
		if exclusive, k.ExclusiveCPUs, cpuErr = r.cpus(); cpuErr != nil {
			k.ExclusiveCPUsProblem = v1alpha1.BoundedText(cpuErr.Error())
		}
	}
	if k.MemoryManagerPolicy == MemoryPolicyStatic {
		k.Memory, memoryErr = r.memory()
	}
	r.stateErr = errors.Join(cpuErr, memoryErr)
	if r.cfg.Unaligned != nil {
		k.UnalignedResources = slices.Compact(slices.Sorted(slices.Values(r.cfg.Unaligned())))
	}
	old := r.Current()
	changed := !equality.Semantic.DeepEqual(old, k)
	if !changed {
		k = old
	}
	r.mu.Lock()
	r.current, r.exclusive = k, exclusive
	r.mu.Unlock()
	if !changed {
		return
	}
	klog.FromContext(ctx).Info("Read how kubelet aligns resources", "version", k.Version, "topologyManagerPolicy", k.TopologyManagerPolicy, "scope", k.Scope,
		"cpuManagerPolicy", k.CPUManagerPolicy, "memoryManagerPolicy", k.MemoryManagerPolicy, "reservedCPUs", k.ReservedCPUs)
	if r.onChange != nil {
		r.onChange(k)
	}
}

// cpus returns the exclusive assignments of the static CPU manager.
func (r *Reader) cpus() (map[types.UID]map[string]nvtopo.CPUSet, string, error) {
	data, err := readBounded(filepath.Join(r.cfg.RootDir, cpuStateFile), maxStateBytes)
	if err != nil {
		return nil, "", fmt.Errorf("CPU manager state: %w", err)
	}
	state, err := ParseCPUState(data)
	if err != nil {
		return nil, "", err
	}
	if state.Policy != CPUPolicyStatic {
		return nil, "", fmt.Errorf("CPU manager state is of policy %q, kubelet runs %q", state.Policy, CPUPolicyStatic)
	}
	all, err := fitting(state.All())
	return state.Exclusive, all, err
}

// reserved determines the CPUs that kubelet reserves, from PodResources. Computing them would need a copy
// of kubelet's choice of cores, which depends on sockets, caches, options and its version.
func (r *Reader) reserved(ctx context.Context, s *settings) (string, error) {
	if r.cfg.Allocatable == nil || r.cfg.Online == nil {
		return "", errors.New("reserved CPUs: only their number is configured, and no source says which CPUs kubelet took")
	}
	want, err := s.reservedCount()
	if err != nil {
		return "", err
	}
	online, err := r.cfg.Online()
	if err != nil {
		return "", fmt.Errorf("reserved CPUs: %w", err)
	}
	allocatable, err := r.cfg.Allocatable(ctx)
	if err != nil {
		return "", fmt.Errorf("reserved CPUs: %w", err)
	}
	got := online.Minus(allocatable)
	if len(got) != want {
		return "", fmt.Errorf("reserved CPUs: kubelet gives out all but %q, its configuration reserves %d", got, want)
	}
	return fitting(got)
}

func (r *Reader) memory() ([]v1alpha1.KubeletMemory, error) {
	data, err := readBounded(filepath.Join(r.cfg.RootDir, memoryStateFile), maxStateBytes)
	if err != nil {
		return nil, fmt.Errorf("memory manager state: %w", err)
	}
	state, err := ParseMemoryState(data)
	if err != nil {
		return nil, err
	}
	if state.Policy != MemoryPolicyStatic {
		return nil, fmt.Errorf("memory manager state is of policy %q, kubelet runs %q", state.Policy, MemoryPolicyStatic)
	}
	return state.Nodes, nil
}

// fitting returns cpus in the kernel's list format, or an error if the list is too long for the
// NodeGPUTopology's schema.
func fitting(cpus nvtopo.CPUSet) (string, error) {
	list := cpus.String()
	if len(list) > maxCPUList {
		return "", fmt.Errorf("a list of %d CPUs has %d characters, at most %d are published", len(cpus), len(list), maxCPUList)
	}
	return list, nil
}

// report stores the current problem, and logs it once until it changes or is resolved.
func (r *Reader) report(ctx context.Context) {
	err := errors.Join(r.baseErr, r.stateErr)
	r.mu.Lock()
	before := r.problem
	r.problem = err
	r.mu.Unlock()
	switch {
	case err == nil && before != nil:
		klog.FromContext(ctx).Info("Everything about kubelet is known again")
	case err != nil && (before == nil || before.Error() != err.Error()):
		klog.FromContext(ctx).Error(err, "Not everything about kubelet is known", "node", r.cfg.Node)
	}
}
