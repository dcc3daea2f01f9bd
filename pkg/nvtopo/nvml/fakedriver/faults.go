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

// Fault is a fault of the machine; see lib/faults.c for the effect of each. A GPU is its index, or
// AllGPUs.
type Fault string

// AllGPUs applies a fault to every GPU, and to calls that concern none.
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

// Lost returns the fault of a GPU that fell off the bus: every call about it fails.
func Lost(index int) Fault { return Fault("lost " + gpu(index)) }

// Gone returns the fault of a GPU that the driver no longer lists.
func Gone(index int) Fault { return Fault("gone " + gpu(index)) }

// LinkDown returns the fault of an NVLink that is down.
func LinkDown(index, link int) Fault { return Fault(fmt.Sprintf("down %s %d", gpu(index), link)) }

// LinksDown returns the fault of a GPU with all NVLinks down.
func LinksDown(index int) Fault { return Fault("down " + gpu(index) + " *") }

// PhantomLinks returns the fault of a driver that reports further NVLinks, up to a number, which do not
// exist, as disabled.
func PhantomLinks(index, links int) Fault {
	return Fault(fmt.Sprintf("phantom %s %d", gpu(index), links))
}

// RemapPending returns the fault of memory rows that wait for a reset to be remapped.
func RemapPending(index int) Fault { return Fault("remap " + gpu(index) + " 1") }

// RemapFailed returns the fault of memory rows that cannot be remapped.
func RemapFailed(index int) Fault { return Fault("remap " + gpu(index) + " 2") }

// Partitioned returns the fault that puts a GPU in MIG mode with the given number of MIG devices, up to
// seven, of one compute slice.
func Partitioned(index, slices int) Fault {
	return Fault(fmt.Sprintf("mig %s %d", gpu(index), slices))
}

// Recovery returns the fault with the recovery action of a GPU, a value of nvmlDeviceGpuRecoveryAction_t.
func Recovery(index, action int) Fault {
	return Fault(fmt.Sprintf("recover %s %d", gpu(index), action))
}

// Fabric returns the fault with a GPU's state of registration with its NVSwitch fabric, a value of
// NVML_GPU_FABRIC_STATE.
func Fabric(index, state int) Fault { return Fault(fmt.Sprintf("fabric %s %d", gpu(index), state)) }

// Fails returns the fault of a call, named without its version (nvmlDeviceGetPciInfo), that returns a
// code.
func Fails(call string, index, code int) Fault {
	return Fault(fmt.Sprintf("fail %s %s %d", call, gpu(index), code))
}

// Hangs returns the fault of a call that does not return until the fault is cleared.
func Hangs(call string, index int) Fault { return Fault("hang " + call + " " + gpu(index)) }

// Faults is the list of current faults. Its methods may be used concurrently.
type Faults struct {
	path string

	mu   sync.Mutex
	now  []Fault // guarded by mu
	xids []Fault // all since the start: readers count them; guarded by mu
}

// Set replaces the current faults; no fault means a healthy machine.
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

// write replaces the file atomically, so that no reader sees half of it. The caller holds mu.
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
