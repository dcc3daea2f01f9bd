// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// unusable returns why pods must not get the device, "" when they may. The text before a colon is
// documented in docs/exporter.md and must not change.
func (r *reading) unusable() string {
	switch {
	case r.failed != nil:
		return reason(r.failed)
	case r.remap.Failed:
		return "memory row remapping failed: the GPU must be replaced"
	}
	switch r.recovery {
	case RecoveryNone, RecoveryDrainP2P, RecoveryIMEX:
		return ""
	case RecoveryReset, RecoveryDrainAndReset:
		return "the driver asks for a GPU reset"
	case RecoveryBusReset:
		return "the driver asks for a GPU reset: of its PCIe bus"
	case RecoveryReboot, RecoverySystemReboot:
		return "the driver asks for a reboot of the node"
	}
	return fmt.Sprintf("the driver asks for an action that is not known: %d", r.recovery)
}

// doubtful returns why the device stays out of service when a call failed that would have shown a reason:
// such a reading may take a device out of service and may not put one back, so the device stays as it
// was. One without an earlier reading waits for a first answer. A query that never succeeds is for the
// operator to resolve; giving out the GPU would leave the jobs to find out.
func (r *reading) doubtful(old *nvtopo.GPU) string {
	switch {
	case r.unsure == nil:
		return ""
	case old.UUID == "":
		return reason(r.unsure)
	}
	return old.Unhealthy
}

// unready returns why CUDA cannot start on the device: until the fabric manager has initialised an
// NVSwitch system, it fails with cudaErrorSystemNotReady, for one GPU as for many (NVIDIA Fabric Manager
// User Guide). Without active links to a switch there is no fabric to wait for: a GPU in a virtual
// machine of its own.
func (r *reading) unready(e end) string {
	if r.failed != nil || r.hidden || r.major < hopper || e.count.through+e.count.unknown == 0 {
		return ""
	}
	switch r.fabric.State {
	case FabricNotStarted:
		return "NVSwitch fabric is not ready: registration has not started"
	case FabricInProgress:
		return "NVSwitch fabric is not ready: registration is in progress"
	case FabricNotSupported, FabricCompleted:
	}
	return ""
}

// limited returns why the device may be used only by itself, "" when it may be used with others. A GPU
// that failed to register "will lose its NVLink peer-to-peer capability and be available for
// non-peer-to-peer use cases" (the same guide). Links that are merely down are not among the reasons:
// they are published as the remaining PCIe paths, and sets for which these suffice may have them.
func (r *reading) limited(e end) string {
	switch {
	case r.failed != nil:
		return ""
	case r.recovery == RecoveryDrainP2P:
		return "the driver asks to drain peer traffic"
	case r.major < hopper || e.count.through+e.count.unknown == 0:
		return ""
	case r.hidden:
		return "NVSwitch fabric registration is not known"
	case r.fabric.State == FabricCompleted && r.fabric.Status != nil:
		return "NVSwitch fabric registration failed: " + textOf(r.fabric.Status)
	}
	return ""
}

// reason returns the text of a driver error for a GPU's health.
func reason(err error) string {
	switch KindOf(err) {
	case KindLost:
		return "GPU is lost: " + textOf(err)
	case KindNoPermission:
		return "no permission to open the GPU"
	case KindUnavailable:
		return "GPU is not available: " + textOf(err)
	case KindTimeout:
		return "the driver does not answer for this GPU"
	case KindOther, KindNotSupported, KindInvalidArgument, KindNoDriver, KindMismatch:
	}
	return "GPU cannot be read: " + textOf(err)
}

func textOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Text
	}
	return err.Error()
}
