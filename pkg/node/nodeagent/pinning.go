// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/pinning"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// pinningRecordWait is how long the creation of a container waits for kubelet's
// checkpoint, a file of some kilobytes. The runtime disconnects a plugin that takes two
// seconds.
const pinningRecordWait = 200 * time.Millisecond

// buildPinning creates the NRI plugin, if it is enabled.
func (a *Agent) buildPinning(_ *rest.Config, clk clock.WithTicker) (err error) {
	if a.cfg.NRI == NRIOff {
		a.verifier.SetPinned(pinning.Off())
		return nil
	}
	mode := pinning.Report
	if a.cfg.NRI == NRIPin {
		mode = pinning.Pin
	}
	a.pinning, err = pinning.New(pinning.Config{
		Node: a.cfg.Node, Socket: a.cfg.NRISocket, Mode: mode, SysfsRoot: a.cfg.SysfsRoot, Exempt: a.cfg.NRIExempt,
		Records:  kubeletRecords(a.checkpoint(), clk),
		Topology: a.graph.object, Kubelet: a.settings.Current, Allocation: a.allocation, Changed: a.verifier.Trigger,
		Escaped: a.escaped, Misbound: a.misbound, Pinned: a.verifier.SetPinned,
	}, clk)
	if err != nil {
		return fmt.Errorf("build the NRI plugin: %w", err)
	}
	return nil
}

// kubeletRecords returns a function that reads kubelet's checkpoint while the container runtime waits. If
// the file system does not respond, only a single read waits for it, however many containers are created.
func kubeletRecords(path string, clk clock.Clock) func() ([]kubelet.Record, error) {
	file := kubelet.NewRecordFile(path, clk)
	return func() ([]kubelet.Record, error) {
		records, err := file.Read(context.Background(), pinningRecordWait)
		if err != nil {
			return nil, err
		}
		return *records, nil
	}
}

// allocation returns the allocation of a pod of this node, or nil if it has no valid one.
func (a *Agent) allocation(uid types.UID) *allocation.Allocation {
	pod := a.pod(uid)
	if pod == nil {
		return nil
	}
	alloc, err := allocation.Of(pod, a.cfg.Node)
	if err != nil {
		return nil // the verifier reports it
	}
	return alloc
}

func (a *Agent) pod(uid types.UID) *v1.Pod {
	pods := a.pods.Pods()
	if i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == uid }); i >= 0 {
		return pods[i]
	}
	return nil
}

// escaped passes a finding of the NRI plugin to the verifier, if the pod still exists.
func (a *Agent) escaped(e pinning.Escape) {
	if pod := a.pod(e.PodUID); pod != nil {
		a.verifier.Escaped(pod, e.Container, e.String())
	}
}

// misbound reports to the verifier which threads would be bound to other CPUs, if the pod still exists.
func (a *Agent) misbound(uid types.UID, container, what string) {
	if pod := a.pod(uid); pod != nil {
		a.verifier.Misbound(pod, container, what)
	}
}

// confinement returns the CPUs that containers are confined to, by kubelet's CPU manager or by the
// agent's pinning.
type confinement struct{ a *Agent }

// CPUs returns the container's CPUs in the kernel's list format, or "" if it is not confined.
func (c confinement) CPUs(uid types.UID, container string) string {
	if cpus := c.a.settings.CPUs(uid, container); cpus != "" || c.a.pinning == nil {
		return cpus
	}
	return c.a.pinning.CPUs(uid, container)
}
