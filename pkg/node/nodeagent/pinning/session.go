// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet/kubeletconf"
	"github.com/nvtopo/nvtopo/pkg/node/openmp"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// budget is the time limit of one answer. The runtime waits two seconds; then it continues without the
// plugin and disconnects it.
const budget = time.Second

// Labels that kubelet sets; used if the runtime has other names for the pod or container.
const (
	podUIDLabel        = "io.kubernetes.pod.uid"
	containerNameLabel = "io.kubernetes.container.name"
)

// session is one connection to the runtime; the runtime calls its methods.
type session struct {
	*Plugin
	done   <-chan struct{} // closed when the connection is given up
	logger klog.Logger
}

// Configure is the runtime's first call. It also ends a registration that was given up, see start.
func (s *session) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	select {
	case <-s.done:
		return 0, errGivenUp
	default:
	}
	s.logger.Info("Registered with the container runtime", "runtime", runtime, "version", version)
	return 0, nil // all events that session has methods for
}

// Synchronize reads the confinement of the existing containers. After a restart of the agent this is the
// only source.
func (s *session) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	sandboxes := make(map[string]*api.PodSandbox, len(pods))
	for _, p := range pods {
		sandboxes[p.GetId()] = p
	}
	// Oldest first, so that the youngest run of a container wins.
	byAge := slices.SortedFunc(slices.Values(containers), func(a, b *api.Container) int { return int(a.GetCreatedAt() - b.GetCreatedAt()) })
	set := map[key]confinement{}
	for _, c := range byAge {
		if pod := sandboxes[c.GetPodSandboxId()]; pod != nil && c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			if cpus := presentCPUs(c); cpus != "" {
				set[keyOf(pod, c)] = confinement{id: c.GetId(), cpus: cpus}
				s.checkBinding(keyOf(pod, c), c, cpus)
			}
		}
	}
	s.mu.Lock()
	s.set = set
	s.mu.Unlock()
	within(s, "looking at the running containers", func() struct{} {
		records, err := s.records()
		if err != nil {
			s.logger.Error(err, "Cannot compare the running containers with kubelet's record")
			return struct{}{}
		}
		for _, c := range byAge {
			if pod := sandboxes[c.GetPodSandboxId()]; pod != nil && c.GetState() != api.ContainerState_CONTAINER_STOPPED {
				s.inspect(pod, c, heldBy(records, keyOf(pod, c)))
			}
		}
		return struct{}{}
	})
	s.connected()
	s.cfg.Changed()
	return nil, nil
}

// CreateContainer confines a container while it is created. It never fails.
func (s *session) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	at, ok := within(s, "deciding about container "+c.GetName()+" of pod "+pod.GetNamespace()+"/"+pod.GetName(), func() place {
		return s.decide(pod, c)
	})
	k := keyOf(pod, c)
	if !ok {
		s.forget(k, "")
		return nil, nil, nil
	}
	cpus := presentCPUs(c)
	var adjust *api.ContainerAdjustment
	if len(at.cpus) > 0 {
		cpus = at.cpus.String()
		adjust = &api.ContainerAdjustment{}
		adjust.SetLinuxCPUSetCPUs(cpus)
		if len(at.mems) > 0 {
			adjust.SetLinuxCPUSetMems(at.mems.String())
		}
	}
	s.mu.Lock()
	before := s.set[k].cpus
	if cpus != "" {
		s.set[k] = confinement{id: c.GetId(), cpus: cpus}
	} else {
		delete(s.set, k)
	}
	s.mu.Unlock()
	if cpus != before {
		s.cfg.Changed()
	}
	s.checkBinding(k, c, cpus)
	return adjust, nil, nil
}

// RemoveContainer forgets a container, unless a newer one with the same name exists.
func (s *session) RemoveContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	s.forget(keyOf(pod, c), c.GetId())
	return nil
}

// forget deletes the confinement of a container; an empty id means any run of it.
func (p *Plugin) forget(k key, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id == "" || p.set[k].id == id {
		delete(p.set, k)
	}
}

// decide returns the place of a container. If the place has no CPUs, the container is left alone.
func (s *session) decide(pod *api.PodSandbox, c *api.Container) place {
	k := keyOf(pod, c)
	logger := s.logger.WithValues("pod", klog.KRef(pod.GetNamespace(), pod.GetName()), "podUID", k.uid, "container", k.name)
	records, err := s.records()
	if err != nil {
		logger.Error(err, "Leaving a container alone: kubelet's record cannot be read")
		return place{}
	}
	held := heldBy(records, k)
	s.inspect(pod, c, held)
	if s.cfg.Mode != Pin || len(held) == 0 {
		return place{}
	}
	conf, topology := s.cfg.Kubelet(), s.cfg.Topology()
	switch {
	case conf == nil || topology == nil || conf.CPUManagerPolicy != kubeletconf.CPUPolicyNone:
		logger.V(2).Info("Leaving a container alone: see the condition Pinned")
		return place{}
	case presentCPUs(c) != "":
		logger.Info("Leaving a container alone: another NRI plugin has already set its CPUs", "cpus", presentCPUs(c))
		return place{}
	}
	resources := c.GetLinux().GetResources()
	q := question{
		spec: &topology.Spec, held: held, container: k.name, allocation: s.allocation(pod, k.uid),
		wantCPUs: requestedCPUs(resources.GetCpu().GetShares().GetValue()), limit: resources.GetMemory().GetLimit().GetValue(),
	}
	at, err := s.ask(&q, conf.ReservedCPUs)
	if err != nil {
		if !errors.Is(err, errNoGPUs) {
			logger.Error(err, "Leaving a container alone")
		}
		return place{}
	}
	if conf.MemoryManagerPolicy != kubeletconf.MemoryPolicyNone || resources.GetCpu().GetMems() != "" {
		at.mems = nil
	} else if at.noMems != "" {
		s.once("Leaving the memory of a container alone: "+at.noMems, logger)
	}
	logger.V(2).Info("Confining a container", "cpus", at.cpus.String(), "mems", at.mems.String())
	return at
}

// records returns kubelet's records; none before kubelet has allocated its first device.
func (p *Plugin) records() ([]kubelet.Record, error) {
	records, err := p.cfg.Records()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return records, err
}

// ask adds the host's current state to a question and returns the place.
func (s *session) ask(q *question, reserved string) (at place, err error) {
	if q.reserved, err = nvtopo.ParseCPUList(reserved); err != nil {
		return place{}, err
	}
	if q.online, err = s.host.online(); err != nil {
		return place{}, err
	}
	if q.memory, err = s.host.memory(); err != nil {
		return place{}, err
	}
	return q.where()
}

// allocation returns the allocation from the agent's watch, with corrections included, or else the pod's
// annotation when its sandbox was created.
func (p *Plugin) allocation(pod *api.PodSandbox, uid types.UID) *allocation.Allocation {
	if a := p.cfg.Allocation(uid); a != nil {
		return a
	}
	a, err := allocation.Parse(pod.GetAnnotations()[allocation.Key])
	if err != nil || !a.Is(uid, p.cfg.Node) {
		return nil
	}
	return a
}

// inspect reports a container that requests more GPUs than it was given.
func (p *Plugin) inspect(pod *api.PodSandbox, c *api.Container, held []kubelet.Record) {
	if slices.Contains(p.cfg.Exempt, pod.GetNamespace()) {
		return
	}
	w := askedFor(c)
	asked, given, escaped := judge(w, held, p.cfg.Topology())
	if !escaped {
		return
	}
	k := keyOf(pod, c)
	p.cfg.Escaped(Escape{
		PodUID: k.uid, Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: k.name, Asked: asked, Given: given, Ways: w.ways,
	})
}

// checkBinding reports a container whose environment binds threads to CPUs outside its confinement.
func (p *Plugin) checkBinding(k key, c *api.Container, confined string) {
	cpus, err := nvtopo.ParseCPUList(confined)
	if err != nil || len(cpus) == 0 {
		return // the runtime's own list, which it parses itself
	}
	if what := openmp.Outside(c.GetEnv(), cpus); what != "" {
		p.cfg.Misbound(k.uid, k.name, what)
	}
}

// once logs a message the first time only.
func (p *Plugin) once(message string, logger klog.Logger) {
	p.mu.Lock()
	_, again := p.said[message]
	p.said[message] = struct{}{}
	p.mu.Unlock()
	if !again {
		logger.Info(message)
	}
}

// within runs f with the time limit of one answer. A late result is dropped, so f must have no lasting
// effects that would then be wrong.
func within[T any](s *session, what string, f func() T) (T, bool) {
	done := make(chan T, 1)
	go func() { done <- f() }()
	timer := s.clk.NewTimer(s.answer)
	defer timer.Stop()
	select {
	case t := <-done:
		return t, true
	case <-timer.C():
		s.logger.Info("No time left, changing nothing", "while", what, "budget", s.answer)
		var none T
		return none, false
	}
}

func heldBy(records []kubelet.Record, k key) []kubelet.Record {
	var held []kubelet.Record
	for _, r := range records {
		if r.PodUID == k.uid && r.Container == k.name {
			held = append(held, r)
		}
	}
	return held
}

func keyOf(pod *api.PodSandbox, c *api.Container) key {
	k := key{types.UID(pod.GetUid()), c.GetName()}
	if uid := pod.GetLabels()[podUIDLabel]; uid != "" {
		k.uid = types.UID(uid)
	}
	if name := c.GetLabels()[containerNameLabel]; name != "" {
		k.name = name
	}
	return k
}

func presentCPUs(c *api.Container) string {
	return canonical(c.GetLinux().GetResources().GetCpu().GetCpus())
}

// requestedCPUs reverses kubelet's encoding of a CPU request: 1024 shares per CPU.
func requestedCPUs(shares uint64) int {
	const perCPU = 1024
	return int(min(shares, 1<<18)+perCPU-1) / perCPU // the kernel's maximum is 2^18
}
