// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxNVLinks is how many link numbers are read: NVML_NVLINK_MAX_LINKS of NVML API 13, the width of Rubin.
const maxNVLinks = 36

// hopper is the first major compute capability whose switch links need a
// completed fabric registration.
const hopper = 9

// nvlink is one active link.
type nvlink struct {
	number int
	remote pciAddr
	known  bool // remote is a real address on this machine's bus
	kind   RemoteType
	hidden bool // the far end has the all-ones address
}

// reading is the result of one sequence of calls for one device. It is handed over as a whole, because
// the sequence may outlive its caller.
type reading struct {
	index    int
	handle   Device // nil when the device could not be opened
	uuid     string
	name     string
	addr     pciAddr
	memory   int64
	mig      bool
	slices   []nvtopo.Slice
	uncut    bool // the MIG devices are not known
	major    int
	gen      nvtopo.PCIeGen
	links    []nvlink
	down     linkSet // links that the driver calls disabled, or cannot read
	fabric   Fabric
	hidden   bool // the fabric state could not be read
	remap    RowRemap
	recovery RecoveryAction
	recovers bool     // recovery is known
	silent   bool     // the driver does not have recovery actions
	failed   error    // why the device cannot be used; nil when it can
	unsure   error    // why it is not known that the device has no fault
	unsplit  bool     // the MIG mode is not known, which is one reason
	notes    []string // parts that could not be read
}

// label returns the device's name in a problem.
func (r *reading) label() string {
	if r.uuid != "" {
		return r.uuid
	}
	return fmt.Sprintf("GPU %d", r.index)
}

// readDevice reads everything that concerns one device alone. It returns an error only if the device has
// no name; lesser failures are in the reading.
func readDevice(lib Library, index int) (*reading, error) {
	dev, err := lib.Device(index)
	if err != nil {
		return nil, err
	}
	r := &reading{index: index, handle: dev}
	if r.uuid, err = dev.UUID(); err != nil {
		return nil, err
	}
	note := func(what string, err error) {
		switch {
		case err == nil || absent(err):
		case KindOf(err) == KindLost && r.failed == nil:
			r.failed = err
		default:
			r.notes = append(r.notes, fmt.Sprintf("%s: %v", what, err))
		}
	}
	r.name, err = dev.Name()
	note("product name", err)
	bus, err := dev.BusID()
	if err == nil {
		r.addr, err = parsePCIAddr(bus)
	}
	note("PCI address", err)
	r.memory, err = dev.MemoryBytes()
	note("memory", err)
	r.mig, err = dev.MIGEnabled()
	note("MIG mode", err)
	r.unsure = doubt(err)
	r.unsplit = r.unsure != nil
	if r.mig {
		note("MIG devices", r.readSlices())
	}
	r.major, err = dev.ComputeMajor()
	note("compute capability", err)
	if doubt(err) != nil {
		r.major = hopper // so that the fabric is judged; before Hopper its state is not supported
	}
	gen, err := dev.MaxPCIeGen()
	note("PCIe generation", err)
	if gen > 0 && gen < 16 {
		r.gen = nvtopo.PCIeGen(gen)
	}
	note("NVLink", r.readLinks())
	r.fabric, err = dev.Fabric()
	note("fabric state", err)
	if err != nil && !absent(err) && r.fabric.State == FabricNotSupported {
		r.fabric.State, r.hidden = FabricNotStarted, true // unreadable is not the same as not needed
	}
	r.remap, err = dev.RowRemap()
	note("row remapping", err)
	r.unsure = cmp.Or(r.unsure, doubt(err))
	r.recovery, err = dev.Recovery()
	note("recovery action", err)
	r.unsure = cmp.Or(r.unsure, doubt(err))
	r.recovers, r.silent = err == nil, absent(err)
	return r, nil
}

// doubt returns an error that leaves a value unknown: the value returned with it, that of a device
// without a fault, must not be used then. A missing permission of the exporter is no doubt about the
// device: it would never end, and is reported as a problem for the operator.
func doubt(err error) error {
	if kind := KindOf(err); err == nil || absent(err) || kind == KindLost || kind == KindNoPermission {
		return nil
	}
	return err
}

// readLinks lists the active links. Link numbers may have gaps, and drivers differ in their error for a
// missing link, so only an invalid argument ends the loop early. An unreadable link is treated as down; a
// lost device ends the loop.
func (r *reading) readLinks() error {
	for l := range maxNVLinks {
		up, err := r.handle.NVLinkActive(l)
		switch {
		case KindOf(err) == KindInvalidArgument:
			return nil
		case absent(err):
			continue
		case KindOf(err) == KindLost:
			return err
		case err != nil:
			r.notes = append(r.notes, fmt.Sprintf("NVLink %d: %v", l, err))
			r.down = r.down.with(l)
			continue
		case !up:
			r.down = r.down.with(l)
			continue
		}
		link, err := readLink(r.handle, l)
		if err != nil {
			return err
		}
		r.links = append(r.links, link)
	}
	return nil
}

// readLink describes the far end of an active link. An unknown far end is no error: the pair's peer
// status decides then.
func readLink(dev Device, l int) (nvlink, error) {
	link := nvlink{number: l}
	kind, err := dev.NVLinkRemoteType(l)
	if KindOf(err) == KindLost {
		return link, err
	}
	if err == nil {
		link.kind = kind
	}
	bus, err := dev.NVLinkRemoteBusID(l)
	if KindOf(err) == KindLost {
		return link, err
	}
	if err != nil {
		return link, nil //nolint:nilerr // an unknown far end is an answer, see above
	}
	addr, err := parsePCIAddr(bus)
	if err != nil {
		return link, nil //nolint:nilerr // likewise
	}
	link.remote = addr
	link.hidden = addr.hidden()
	link.known = !link.hidden
	return link, nil
}
