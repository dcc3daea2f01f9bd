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

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/nodeagent/pinning"
)

// pinningRecordWait is how long a container that is being made waits for kubelet's
// checkpoint, a file of some kilobytes: the runtime disconnects a plugin that keeps it
// waiting for two seconds.
const pinningRecordWait = 200 * time.Millisecond

// buildPinning makes what stands at the container runtime, if that is wanted.
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
		Escaped: a.escaped, Pinned: a.verifier.SetPinned,
	}, clk)
	if err != nil {
		return fmt.Errorf("stand at the container runtime: %w", err)
	}
	return nil
}

// kubeletRecords reads kubelet's checkpoint while the container runtime waits. However
// many containers are made while the file system does not answer, one read waits for it.
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

// allocation returns the scheduler's choice for a pod of this node; nil if there is
// none that is valid here.
func (a *Agent) allocation(uid types.UID) *allocation.Allocation {
	pod := a.pod(uid)
	if pod == nil {
		return nil
	}
	alloc, err := allocation.Of(pod, a.cfg.Node)
	if err != nil {
		return nil // the verifier tells the user
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

// escaped passes on what the runtime showed, if it is of a pod that is still known.
func (a *Agent) escaped(e pinning.Escape) {
	if pod := a.pod(e.PodUID); pod != nil {
		a.verifier.Escaped(pod, e.Container, e.String())
	}
}

// confinement knows the CPUs that containers are confined to: by kubelet's CPU
// manager, or else by the agent's pinning.
type confinement struct{ a *Agent }

// CPUs returns them in the kernel's list format, empty where there is no such limit.
func (c confinement) CPUs(uid types.UID, container string) string {
	if cpus := c.a.settings.CPUs(uid, container); cpus != "" || c.a.pinning == nil {
		return cpus
	}
	return c.a.pinning.CPUs(uid, container)
}
