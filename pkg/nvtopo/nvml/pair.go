// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// pairReading is the driver's result for two devices together.
type pairReading struct {
	ancestor Ancestor
	related  bool // ancestor is known
	peer     PeerStatus
	failed   error // a device was lost during the calls
}

// readPairs reads the relation of one device to each of the others.
func readPairs(dev Device, others []Device) ([]pairReading, error) {
	out := make([]pairReading, len(others))
	for i, o := range others {
		a, err := dev.CommonAncestor(o)
		out[i].ancestor, out[i].related = a, err == nil
		if KindOf(err) == KindLost {
			out[i].failed = err
		}
		if st, err := dev.NVLinkPeer(o); err == nil {
			out[i].peer = st
		}
	}
	return out, nil
}

// pcieLevel returns the PCIe level of the driver's ancestor.
func (p pairReading) pcieLevel() nvtopo.PCIeLevel {
	if !p.related {
		return nvtopo.PCIeUnknown
	}
	switch p.ancestor {
	case AncestorInternal, AncestorSingle:
		return nvtopo.PCIePIX
	case AncestorMultiple:
		return nvtopo.PCIePXB
	case AncestorHostBridge:
		return nvtopo.PCIePHB
	case AncestorNode:
		return nvtopo.PCIeNODE
	case AncestorSystem:
		return nvtopo.PCIeSYS
	}
	return nvtopo.PCIeUnknown
}

// linkCount is the number of a device's active links by their far end.
type linkCount struct {
	direct  map[pciAddr]int // far end on this bus -> links
	through int             // links to a switch
	unknown int             // links to an unknown far end
}

// countLinks classifies active links. The far end's type decides; where the driver does not have that
// call, the all-ones address means a switch (on Blackwell and in virtual machines nothing else is ever
// seen), an address of one of the node's GPUs that GPU, and an address of an NVSwitch on the bus a
// switch.
func countLinks(links []nvlink, gpus map[pciAddr]bool, isSwitch func(pciAddr) bool) linkCount {
	c := linkCount{direct: map[pciAddr]int{}}
	for _, l := range links {
		switch {
		case l.kind == RemoteCPU:
		case l.kind == RemoteSwitch:
			c.through++
		case l.known && gpus[l.remote]:
			c.direct[l.remote]++
		case l.kind == RemoteGPU && l.hidden:
			c.unknown++ // it is not known which GPU
		case l.kind == RemoteGPU:
			// A GPU that is not visible to this process.
		case l.hidden, l.known && isSwitch(l.remote):
			c.through++
		default:
			c.unknown++
		}
	}
	return c
}

// fabricTrust is how far a device's switch links are trusted.
type fabricTrust int

const (
	distrusted fabricTrust = iota // the fabric is not up: links are trained but carry nothing
	onEvidence                    // only where the driver confirms the peer
	trusted
)

// trust judges the fabric registration. Before Hopper switches need none; from Hopper on an active link
// proves nothing until registration is complete, which may take a while after boot and never happens for
// a GPU outside an active partition.
func (r *reading) trust() (fabricTrust, string) {
	if r.major < hopper || r.fabric.State == FabricNotSupported {
		return trusted, ""
	}
	switch {
	case r.fabric.State == FabricInProgress:
		return distrusted, "NVSwitch fabric registration is in progress"
	case r.fabric.State != FabricCompleted:
		return distrusted, "NVSwitch fabric registration has not started"
	case r.fabric.Status != nil:
		return distrusted, fmt.Sprintf("NVSwitch fabric registration failed: %v", r.fabric.Status)
	case r.fabric.Health == FabricUnhealthy:
		return onEvidence, "NVSwitch fabric is unhealthy"
	case r.fabric.Health == FabricLimited:
		return trusted, "NVSwitch fabric has limited capacity"
	}
	return trusted, ""
}

// end is one side of a pair.
type end struct {
	addr  pciAddr
	count linkCount
	trust fabricTrust
	// fabric identifies the NVLink domain; compared only when both completed.
	fabric Fabric
}

// nvlinks returns the number of NVLinks that join two devices, and whether they go through a switch.
// Direct links are used where both ends see each other. Otherwise both ends reach the switches with all
// their links and the smaller number bounds the pair; no common switch address is required, because on a
// DGX-2 the two baseboards have none.
func nvlinks(a, b end, peer PeerStatus) (n int, switched bool) {
	ab, ba := a.count.direct[b.addr], b.count.direct[a.addr]
	if n := min(ab, ba); n > 0 {
		return n, false
	}
	if ab > 0 || ba > 0 || peer == PeerRefused {
		return 0, false
	}
	if a.fabric.State == FabricCompleted && b.fabric.State == FabricCompleted &&
		(a.fabric.Cluster != b.fabric.Cluster || a.fabric.Clique != b.fabric.Clique) {
		return 0, false
	}
	switch min(a.trust, b.trust) {
	case distrusted:
		return 0, false
	case onEvidence:
		if peer != PeerOK {
			return 0, false
		}
	case trusted:
	}
	x, y := a.count.through, b.count.through
	if peer == PeerOK {
		// The driver confirms the pair, so a far end of unknown kind is the path.
		x, y = x+a.count.unknown, y+b.count.unknown
	}
	return min(x, y), true
}
