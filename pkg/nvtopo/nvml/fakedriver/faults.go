// SPDX-License-Identifier: Apache-2.0

package fakedriver

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Fault is something that is wrong with the machine; see lib/faults.c for what
// each does. A GPU is its index, or AllGPUs.
type Fault string

// AllGPUs makes a fault one of every GPU, and of calls that concern none.
const AllGPUs = -1

// Codes of nvmlReturn_t (nvml.h).
const (
	NotSupported    = 3
	NoPermission    = 4
	DriverNotLoaded = 9
	VersionMismatch = 18 // of the library and the kernel's module
	Unknown         = 999
)

func gpu(index int) string {
	if index == AllGPUs {
		return "*"
	}
	return strconv.Itoa(index)
}

// Lost is a GPU that fell off the bus: every call about it says so.
func Lost(index int) Fault { return Fault("lost " + gpu(index)) }

// Gone is a GPU that the driver no longer lists.
func Gone(index int) Fault { return Fault("gone " + gpu(index)) }

// LinkDown is an NVLink that is down.
func LinkDown(index, link int) Fault { return Fault(fmt.Sprintf("down %s %d", gpu(index), link)) }

// LinksDown is a GPU all of whose NVLinks are down.
func LinksDown(index int) Fault { return Fault("down " + gpu(index) + " *") }

// PhantomLinks are NVLinks up to a number that do not exist and that the driver
// calls disabled.
func PhantomLinks(index, links int) Fault {
	return Fault(fmt.Sprintf("phantom %s %d", gpu(index), links))
}

// RemapPending are memory rows that wait for a reset to be remapped.
func RemapPending(index int) Fault { return Fault("remap " + gpu(index) + " 1") }

// RemapFailed are memory rows that cannot be remapped.
func RemapFailed(index int) Fault { return Fault("remap " + gpu(index) + " 2") }

// Partitioned is a GPU in MIG mode with so many MIG devices, up to seven, of one compute slice.
func Partitioned(index, slices int) Fault {
	return Fault(fmt.Sprintf("mig %s %d", gpu(index), slices))
}

// Recovery is what the driver asks to be done with a GPU, a value of
// nvmlDeviceGpuRecoveryAction_t.
func Recovery(index, action int) Fault {
	return Fault(fmt.Sprintf("recover %s %d", gpu(index), action))
}

// Fabric is the registration of a GPU with its NVSwitch fabric, a value of
// NVML_GPU_FABRIC_STATE.
func Fabric(index, state int) Fault { return Fault(fmt.Sprintf("fabric %s %d", gpu(index), state)) }

// Fails is a call, named without its version (nvmlDeviceGetPciInfo), that returns a code.
func Fails(call string, index, code int) Fault {
	return Fault(fmt.Sprintf("fail %s %s %d", call, gpu(index), code))
}

// Hangs is a call that does not return until the fault is over.
func Hangs(call string, index int) Fault { return Fault("hang " + call + " " + gpu(index)) }

// Faults is the list of what is wrong at the moment. Its methods may be used concurrently.
type Faults struct {
	path string

	mu   sync.Mutex
	now  []Fault // guarded by mu
	xids []Fault // all there ever were: readers count them; guarded by mu
}

// Set makes these the faults, in place of those before; none heals the machine.
func (f *Faults) Set(faults ...Fault) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = slices.Clone(faults)
	return f.write()
}

// Xid sends an event to every event set that a GPU is registered with.
func (f *Faults) Xid(index int, xid uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.xids = append(f.xids, Fault(fmt.Sprintf("xid %d %d", xid, index)))
	return f.write()
}

// write replaces the file, so that nobody reads half of it. The caller holds mu.
func (f *Faults) write() error {
	var text strings.Builder
	for _, line := range slices.Concat(f.now, f.xids) {
		text.WriteString(string(line) + "\n")
	}
	fresh := f.path + ".new"
	if err := writeFile(fresh, text.String()); err != nil {
		return fmt.Errorf("write the faults: %w", err)
	}
	if err := os.Rename(fresh, f.path); err != nil {
		return fmt.Errorf("write the faults: %w", err)
	}
	return nil
}
