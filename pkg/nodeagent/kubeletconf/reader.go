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
	// defaultInterval between two readings of the configuration, which only
	// changes when kubelet restarts; a restart is told by Trigger.
	defaultInterval = 5 * time.Minute
	// statePoll is how often the managers' state is read, where a policy keeps
	// one: it changes with every pod and counts in the next placement.
	statePoll = 5 * time.Second
	// firstRetry after a failure doubles up to the interval.
	firstRetry = time.Second
	// maxCPUList is the custom resource's limit of a CPU list.
	maxCPUList = 1024
)

// Config says where the kubelet's configuration is found.
type Config struct {
	Node string // name of the Node
	// File is a KubeletConfiguration; empty asks kubelet's /configz.
	File string
	// Address of kubelet's HTTPS server as host:port, for /configz.
	Address func(ctx context.Context) (string, error)
	// REST has the token that is shown to kubelet and the cluster's authority.
	REST *rest.Config
	// CAFile holds what kubelet's serving certificate is verified with, beside the
	// cluster's authority and the certificate below RootDir that kubelet made.
	CAFile string
	// RootDir is kubelet's root directory, /var/lib/kubelet.
	RootDir string
	// Interval between readings; 0 means five minutes.
	Interval time.Duration
	// Allocatable asks PodResources which CPUs kubelet gives to containers, and
	// Online the kernel which there are: together the reserved ones under the
	// static policy, where kubelet chooses them itself.
	Allocatable func(ctx context.Context) (nvtopo.CPUSet, error)
	Online      func() (nvtopo.CPUSet, error)
	// Unaligned lists the resources whose NUMA nodes kubelet is not told.
	Unaligned func() []string
}

// Reader keeps what is known of the node's kubelet up to date.
type Reader struct {
	cfg      Config
	clk      clock.WithTicker
	wake     chan struct{}
	onChange func(*v1alpha1.Kubelet)

	base     *v1alpha1.Kubelet // the configuration; of Run's goroutine only, nil until read
	baseErr  error             // of Run's goroutine only
	stateErr error             // of Run's goroutine only

	mu        sync.Mutex
	current   *v1alpha1.Kubelet                      // guarded by mu; immutable once stored
	exclusive map[types.UID]map[string]nvtopo.CPUSet // guarded by mu; immutable once stored
	problem   error                                  // guarded by mu
}

// New checks the configuration; nothing is read before Run.
func New(cfg Config, clk clock.WithTicker) (*Reader, error) {
	if cfg.Node == "" || cfg.RootDir == "" {
		return nil, errors.New("kubelet configuration: a node name and kubelet's root directory are needed")
	}
	if cfg.File == "" && (cfg.Address == nil || cfg.REST == nil) {
		return nil, errors.New("kubelet configuration: asking configz needs kubelet's address and credentials")
	}
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	return &Reader{cfg: cfg, clk: clk, wake: make(chan struct{}, 1)}, nil
}

// OnChange has f called with every new reading, from Run's goroutine. It must be
// called before Run.
func (r *Reader) OnChange(f func(*v1alpha1.Kubelet)) { r.onChange = f }

// Trigger has everything read again soon; the agent calls it when kubelet has
// restarted. It never blocks.
func (r *Reader) Trigger() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Current returns what is known, nil while nothing is. It must not be changed.
func (r *Reader) Current() *v1alpha1.Kubelet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// Problem returns what the last reading could not find out, nil if nothing.
func (r *Reader) Problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem
}

// CPUs returns the CPUs that kubelet gave to one container alone, in the
// kernel's list format, or "" when it did not or that is not known.
func (r *Reader) CPUs(uid types.UID, container string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exclusive[uid][container].String()
}

// Run reads until ctx ends. What was read last stays while kubelet does not
// answer: it admits no pod meanwhile, and after a restart it is read anew.
func (r *Reader) Run(ctx context.Context) error {
	poll := r.clk.NewTicker(statePoll)
	defer poll.Stop()
	retry := firstRetry
	next := r.clk.Now()
	for {
		if !r.clk.Now().Before(next) {
			if err := r.refresh(ctx); err != nil {
				next, retry = r.clk.Now().Add(retry), min(2*retry, r.cfg.Interval)
			} else {
				next, retry = r.clk.Now().Add(r.cfg.Interval), firstRetry
			}
		} else {
			r.publish(ctx)
		}
		// A failure may be due again before the poll is.
		due := r.clk.NewTimer(max(next.Sub(r.clk.Now()), 0))
		select {
		case <-ctx.Done():
			due.Stop()
			return nil
		case <-r.wake:
			next, retry = r.clk.Now(), firstRetry
		case <-poll.C():
		case <-due.C():
		}
		due.Stop()
	}
}

// refresh reads the configuration and then the managers' state. An error means
// that something is missing and worth asking for again soon.
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

// configuration returns what does not change while kubelet runs; both values are
// set when only the reserved CPUs are not known.
func (r *Reader) configuration(ctx context.Context) (*v1alpha1.Kubelet, error) {
	s, err := r.source(ctx)
	if err != nil {
		return nil, err
	}
	k, err := s.kubelet()
	if err != nil {
		return nil, err
	}
	if k.CPUManagerPolicy == CPUPolicyStatic && k.ReservedCPUs == "" {
		k.ReservedCPUs, err = r.reserved(ctx, s)
	}
	return k, err
}

// publish puts the configuration read last together with the managers' present
// state, which under no static policy is nothing.
func (r *Reader) publish(ctx context.Context) {
	defer r.report(ctx)
	if r.base == nil {
		return
	}
	k := r.base.DeepCopy()
	var exclusive map[types.UID]map[string]nvtopo.CPUSet
	var cpuErr, memoryErr error
	if k.CPUManagerPolicy == CPUPolicyStatic {
		exclusive, k.ExclusiveCPUs, cpuErr = r.cpus()
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
	klog.FromContext(ctx).Info("Read how kubelet aligns resources", "topologyManagerPolicy", k.TopologyManagerPolicy, "scope", k.Scope,
		"cpuManagerPolicy", k.CPUManagerPolicy, "memoryManagerPolicy", k.MemoryManagerPolicy, "reservedCPUs", k.ReservedCPUs)
	if r.onChange != nil {
		r.onChange(k)
	}
}

// cpus returns what the static CPU manager holds.
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

// reserved asks kubelet which CPUs it keeps from containers. Computing it would
// mean to follow its choice of cores, which depends on sockets, caches, options
// and its version; PodResources gives the answer itself.
func (r *Reader) reserved(ctx context.Context, s *settings) (string, error) {
	if r.cfg.Allocatable == nil || r.cfg.Online == nil {
		return "", errors.New("reserved CPUs: only an amount is configured and nothing tells which kubelet took")
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

// fitting returns the list format unless the custom resource cannot hold it.
func fitting(cpus nvtopo.CPUSet) (string, error) {
	list := cpus.String()
	if len(list) > maxCPUList {
		return "", fmt.Errorf("a list of %d CPUs has %d characters, at most %d are published", len(cpus), len(list), maxCPUList)
	}
	return list, nil
}

// report stores what is not known and logs it once, until it changes or goes.
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
