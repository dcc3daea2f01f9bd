// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// xidClass is what an Xid says about its GPU.
type xidClass int

const (
	// xidFatal is every Xid that nothing else is known of: the GPU is not to be used.
	xidFatal xidClass = iota
	// xidApplication is a fault of the application: the GPU is as good as before.
	xidApplication
	// xidLink is a fault of the GPU's NVLinks: the GPU computes, but not with others.
	xidLink
	// xidNews says that another answer has changed, which is read anew.
	xidNews
)

// classOf sorts Xids.
//
// Application faults are those that NVIDIA's own device plugin ignores
// (internal/rm/health.go of NVIDIA/k8s-device-plugin), so that kubelet's view of the
// devices and ours agree: 13 graphics engine exception, 31 memory page fault, 43
// channel stopped, 45 preemptive clean-up, 68 video processor exception, 109 context
// switch timeout. For all of them NVIDIA's Xid catalogue
// (docs.nvidia.com/deploy/xid-errors) has at most the application restarted.
// Link faults are 74 (NVLink error) and its successors from Blackwell on, 144 to 150.
// 154 tells that the recovery action changed, also when to none.
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
	lost bool // the GPU was away since, as it is during a reset
}

// xidBook remembers Xids.
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

// xidVerdict is what Xids keep a GPU from; empty texts when from nothing.
type xidVerdict struct{ unhealthy, degraded string }

// verdict says what a GPU's Xids keep it from. A mark is lifted when it has stood for
// hold and the driver, asked for the recovery that the GPU needs, answers none. Where
// the driver cannot say, a GPU that was lost and answers again has been reset;
// otherwise the mark stays until the process ends. A driver that fails to say it once
// is not one that cannot.
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
