// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// failure returns an error that means neither that a feature is absent nor that the GPU is lost.
func failure(kind ErrorKind, text string) error {
	return &Error{Call: "nvmlDeviceGetFieldValues", Kind: kind, Text: text}
}

// TestFailedQueryKeepsFaults: a query that fails ends no fault.
func TestFailedQueryKeepsFaults(t *testing.T) {
	timeout, unknown := failure(KindTimeout, "Timeout"), failure(KindOther, "Unknown Error")
	pcie := []string{"GPU-00 GPU-02 SYS", "GPU-01 GPU-02 SYS", "GPU-02 GPU-03 NODE"}
	tests := map[string]struct {
		breakIt func(g *fakeGPU)
		// fail makes the driver fail to answer; the fake's value is then that of a GPU without a fault, as in
		// package live.
		fail func(g *fakeGPU)
		want []string
	}{
		"a reset is wanted, and the recovery action cannot be read": {
			breakIt: func(g *fakeGPU) { g.recovery = RecoveryReset },
			fail:    func(g *fakeGPU) { g.recovery, g.errs["Recovery"] = RecoveryNone, unknown },
			want:    []string{"GPU-02 unhealthy: the driver asks for a GPU reset"},
		},
		"a reset is wanted, and the recovery action times out": {
			breakIt: func(g *fakeGPU) { g.recovery = RecoveryReset },
			fail:    func(g *fakeGPU) { g.recovery, g.errs["Recovery"] = RecoveryNone, timeout },
			want:    []string{"GPU-02 unhealthy: the driver asks for a GPU reset"},
		},
		"peer traffic is to be drained, and the recovery action cannot be read": {
			breakIt: func(g *fakeGPU) { g.recovery = RecoveryDrainP2P },
			fail:    func(g *fakeGPU) { g.recovery, g.errs["Recovery"] = RecoveryNone, unknown },
			want:    []string{"GPU-02 degraded: the driver asks to drain peer traffic"},
		},
		"rows cannot be remapped, and the remapped rows cannot be read": {
			breakIt: func(g *fakeGPU) { g.remap.Failed = true },
			fail:    func(g *fakeGPU) { g.remap, g.errs["RowRemap"] = RowRemap{}, unknown },
			want:    []string{"GPU-02 unhealthy: memory row remapping failed: the GPU must be replaced"},
		},
		"it is partitioned, and the MIG mode cannot be read": {
			breakIt: func(g *fakeGPU) { g.mig = true },
			fail:    func(g *fakeGPU) { g.mig, g.errs["MIGEnabled"] = false, unknown },
			want:    append([]string{"GPU-02 partitioned"}, pcie...),
		},
		"the fabric is not ready, and the compute capability cannot be read": {
			breakIt: func(g *fakeGPU) { g.fabric = Fabric{State: FabricInProgress} },
			fail:    func(g *fakeGPU) { g.major, g.errs["ComputeMajor"] = 0, unknown },
			want:    append([]string{"GPU-02 unhealthy: NVSwitch fabric is not ready: registration is in progress"}, pcie...),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			lib, s := h100(t, 4)
			sick := lib.gpus[2]
			well := *sick
			d := New(lib, s.root, Options{})
			tc.breakIt(sick)
			readFaults(t, d, "with the fault", tc.want)
			tc.fail(sick)
			readFaults(t, d, "when the query fails", tc.want)
			g := readFaults(t, d, "while it does", tc.want)
			readFaults(t, New(lib, s.root, Options{Previous: g}), "after a restart", tc.want)
			*sick = well
			clear(sick.errs)
			readFaults(t, d, "when the driver answers that nothing is wrong", nil)
		})
	}
}

// TestFailedQuery: a query that fails is no fault.
func TestFailedQuery(t *testing.T) {
	for name, tc := range map[string]struct {
		call       string
		kind       ErrorKind
		wantAtOnce []string // of a GPU without a past
	}{
		"the recovery action": {call: "Recovery", wantAtOnce: []string{"GPU-02 unhealthy: GPU cannot be read: Unknown Error"}},
		"the remapped rows":   {call: "RowRemap", wantAtOnce: []string{"GPU-02 unhealthy: GPU cannot be read: Unknown Error"}},
		"the MIG mode":        {call: "MIGEnabled", wantAtOnce: []string{"GPU-02 unhealthy: GPU cannot be read: Unknown Error"}},
		"the remapped rows, which the exporter may not read":       {call: "RowRemap", kind: KindNoPermission},
		"the compute capability, without which the fabric decides": {call: "ComputeMajor"},
	} {
		t.Run(name, func(t *testing.T) {
			lib, s := h100(t, 4)
			sick := lib.gpus[2]
			failed := failure(tc.kind, "Unknown Error")
			sick.errs[tc.call] = failed
			d := New(lib, s.root, Options{})
			readFaults(t, d, "at the first reading", tc.wantAtOnce)
			readFaults(t, d, "at the second", tc.wantAtOnce)
			clear(sick.errs)
			readFaults(t, d, "with an answer", nil)
			sick.errs[tc.call] = failed
			readFaults(t, d, "without one again", nil)
		})
	}
}

// TestXidAfterReset: an Xid outlives a reset until the driver has answered.
func TestXidAfterReset(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	lib, s := h100(t, 4)
	d := New(lib, s.root, Options{Clock: clk})
	sick := lib.gpus[2]
	readFaults(t, d, "at first", nil)
	d.xids.record("GPU-02", xidFatal, 94, clk.Now())
	sick.openErr = lost("nvmlDeviceGetHandleByIndex")
	readFaults(t, d, "while it is away", []string{"GPU-02 unhealthy: GPU is lost: GPU is lost"})
	sick.openErr = nil
	sick.errs["Recovery"] = failure(KindOther, "Unknown Error")
	clk.SetTime(clk.Now().Add(time.Hour))
	readFaults(t, d, "when a driver that has recovery actions fails to say which", []string{"GPU-02 unhealthy: Xid 94"})
	clear(sick.errs)
	readFaults(t, d, "when it says none", nil)
}
