// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// xidClass is the meaning of an Xid for its GPU.
type xidClass int

const (
	// xidFatal is every Xid of no other class: the GPU is not to be used.
	xidFatal xidClass = iota
	// xidApplication is a fault of the application: the GPU is unharmed.
	xidApplication
	// xidLink is a fault of the GPU's NVLinks: the GPU computes, but not with others.
	xidLink
	// xidNews reports that another value has changed, which is read again.
	xidNews
)

// classOf classifies an Xid.
//
// Application faults are those that NVIDIA's own device plugin ignores (internal/rm/health.go of
// NVIDIA/k8s-device-plugin), so that kubelet's view of the devices and ours agree: 13 graphics engine
// exception, 31 memory page fault, 43 channel stopped, 45 preemptive clean-up, 68 video processor
// exception, 109 context switch timeout. For all of them NVIDIA's Xid catalogue
// (docs.nvidia.com/deploy/xid-errors) requires at most a restart of the application. Link faults are 74
// (NVLink error) and its successors from Blackwell on, 144 to 150. 154 reports that the recovery action
// changed, also to none.
func (d *Discoverer) classOf(xid uint64) xidClass {
	switch {
	case slices.Contains(d.opts.IgnoreXids, xid):
		return xidApplication
	case xid == 74 || xid >= 144 && xid <= 150:
		return xidLink
	case xid == 154:
		return xidNews
	}
	switch xid {
	case 13, 31, 43, 45, 68, 109:
		return xidApplication
	}
	return xidFatal
}

// xidMark is the latest Xid of one class of a GPU.
type xidMark struct {
	xid  uint64
	at   time.Time
	lost bool // the GPU was lost since, as during a reset
}

// xidBook holds the latest Xids of the GPUs.
type xidBook struct {
	mu    sync.Mutex
	marks map[string]map[xidClass]*xidMark // UUID -> latest of each class; guarded by mu
}

func (x *xidBook) record(uuid string, class xidClass, xid uint64, at time.Time) {
	if class != xidFatal && class != xidLink {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.marks[uuid] == nil {
		x.marks[uuid] = map[xidClass]*xidMark{}
	}
	x.marks[uuid][class] = &xidMark{xid: xid, at: at}
}

// xidVerdict is the restrictions of a GPU from its Xids; empty texts when there are none.
type xidVerdict struct{ unhealthy, degraded string }

// verdict returns a GPU's restrictions from its Xids. A mark is lifted when it is older than hold and the
// driver reports that the GPU needs no recovery. Where the driver cannot report that, a GPU that was lost
// and answers again has been reset; otherwise the mark stays until the process ends. A single failed call
// does not mean that the driver cannot report it.
func (x *xidBook) verdict(r *reading, now time.Time, hold time.Duration) (v xidVerdict) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for class, m := range x.marks[r.uuid] {
		m.lost = m.lost || r.failed != nil
		content := r.recovers && r.recovery == RecoveryNone || r.silent && m.lost
		if r.failed == nil && content && now.Sub(m.at) >= hold {
			delete(x.marks[r.uuid], class)
			continue
		}
		text := "Xid " + strconv.FormatUint(m.xid, 10)
		if class == xidLink {
			v.degraded = "NVLink error: " + text
		} else {
			v.unhealthy = text
		}
	}
	return v
}
