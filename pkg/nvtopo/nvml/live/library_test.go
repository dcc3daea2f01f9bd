// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"slices"
	"testing"
	"time"

	driver "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// withSymbols is a driver that has exactly these symbols. Its devices panic when
// a call is made that the test did not prepare, as the real ones end the process.
func withSymbols(dev *mock.Device, symbols ...string) nvml.Device {
	return device{libraryWith(symbols...), dev}
}

func libraryWith(symbols ...string) library {
	ext := &mock.ExtendedInterface{LookupSymbolFunc: func(name string) error {
		if slices.Contains(symbols, name) {
			return nil
		}
		return errors.New("undefined symbol")
	}}
	return library{drv: &mock.Interface{ExtensionsFunc: func() driver.ExtendedInterface { return ext }}}
}

// TestMissingCalls: calls that the driver lacks are not made.
func TestMissingCalls(t *testing.T) {
	d := withSymbols(&mock.Device{})
	lib := libraryWith()
	for name, call := range map[string]func() error{
		"DeviceCount":       func() error { _, err := lib.DeviceCount(); return err },
		"Device":            func() error { _, err := lib.Device(0); return err },
		"NewEventSet":       func() error { _, err := lib.NewEventSet(); return err },
		"UUID":              func() error { _, err := d.UUID(); return err },
		"Name":              func() error { _, err := d.Name(); return err },
		"BusID":             func() error { _, err := d.BusID(); return err },
		"MemoryBytes":       func() error { _, err := d.MemoryBytes(); return err },
		"MaxPCIeGen":        func() error { _, err := d.MaxPCIeGen(); return err },
		"MIGEnabled":        func() error { _, err := d.MIGEnabled(); return err },
		"Slices":            func() error { _, err := d.Slices(); return err },
		"ComputeMajor":      func() error { _, err := d.ComputeMajor(); return err },
		"CommonAncestor":    func() error { _, err := d.CommonAncestor(d); return err },
		"NVLinkPeer":        func() error { _, err := d.NVLinkPeer(d); return err },
		"NVLinkActive":      func() error { _, err := d.NVLinkActive(0); return err },
		"NVLinkRemoteBusID": func() error { _, err := d.NVLinkRemoteBusID(0); return err },
		"NVLinkRemoteType":  func() error { _, err := d.NVLinkRemoteType(0); return err },
		"Fabric":            func() error { _, err := d.Fabric(); return err },
		"RowRemap":          func() error { _, err := d.RowRemap(); return err },
		"Recovery":          func() error { _, err := d.Recovery(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if got := nvml.KindOf(call()); got != nvml.KindNotSupported {
				t.Errorf("kind %v, want not supported", got)
			}
		})
	}
}

// forEvents are the symbols of an event set.
var forEvents = []string{
	"nvmlEventSetCreate", "nvmlEventSetWait_v2", "nvmlEventSetFree", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents",
}

// TestIncompleteEventSet: an event set is not made without all of its calls.
func TestIncompleteEventSet(t *testing.T) {
	for i, missing := range forEvents {
		t.Run(missing, func(t *testing.T) {
			_, err := libraryWith(slices.Delete(slices.Clone(forEvents), i, i+1)...).NewEventSet()
			if nvml.KindOf(err) != nvml.KindNotSupported {
				t.Errorf("error %v, want one of kind not supported", err)
			}
		})
	}
}

// TestErrorKinds: errors are sorted by kind.
func TestErrorKinds(t *testing.T) {
	for ret, want := range map[driver.Return]nvml.ErrorKind{
		driver.ERROR_NOT_SUPPORTED:             nvml.KindNotSupported,
		driver.ERROR_ARGUMENT_VERSION_MISMATCH: nvml.KindNotSupported,
		driver.ERROR_INVALID_ARGUMENT:          nvml.KindInvalidArgument,
		driver.ERROR_GPU_IS_LOST:               nvml.KindLost,
		driver.ERROR_RESET_REQUIRED:            nvml.KindLost,
		driver.ERROR_NO_PERMISSION:             nvml.KindNoPermission,
		driver.ERROR_INSUFFICIENT_POWER:        nvml.KindUnavailable,
		driver.ERROR_IRQ_ISSUE:                 nvml.KindUnavailable,
		driver.ERROR_TIMEOUT:                   nvml.KindTimeout,
		driver.ERROR_LIBRARY_NOT_FOUND:         nvml.KindNoDriver,
		driver.ERROR_DRIVER_NOT_LOADED:         nvml.KindNoDriver,
		driver.ERROR_UNKNOWN:                   nvml.KindOther,
		driver.ERROR_LIB_RM_VERSION_MISMATCH:   nvml.KindMismatch,
	} {
		if got := nvml.KindOf(check("call", ret)); got != want {
			t.Errorf("%s: kind %v, want %v", ret, got, want)
		}
	}
	if err := check("call", driver.SUCCESS); err != nil {
		t.Errorf("success is the error %v", err)
	}
}

// TestBusIDTermination: a bus ID ends at the zero byte or the end of the array.
func TestBusIDTermination(t *testing.T) {
	var p driver.PciInfo
	for i, c := range "0000000F:01:00.0" {
		p.BusId[i] = int8(c)
	}
	if got := busID(p); got != "0000000F:01:00.0" {
		t.Errorf("bus id %q", got)
	}
	for i := range p.BusId {
		p.BusId[i] = 'F'
	}
	if got := busID(p); len(got) != len(p.BusId) {
		t.Errorf("bus id of %d characters, want the whole array", len(got))
	}
}

// TestAnswerTranslation: answers are translated.
func TestAnswerTranslation(t *testing.T) {
	d := withSymbols(&mock.Device{
		GetP2PStatusFunc: func(driver.Device, driver.GpuP2PCapsIndex) (driver.GpuP2PStatus, driver.Return) {
			return driver.P2P_STATUS_DISABLED_BY_REGKEY, driver.SUCCESS
		},
		GetTopologyCommonAncestorFunc: func(driver.Device) (driver.GpuTopologyLevel, driver.Return) {
			return driver.TOPOLOGY_NODE, driver.SUCCESS
		},
		GetNvLinkRemoteDeviceTypeFunc: func(int) (driver.IntNvLinkDeviceType, driver.Return) {
			return driver.NVLINK_DEVICE_TYPE_SWITCH, driver.SUCCESS
		},
		GetGpuFabricInfoFunc: func() (driver.GpuFabricInfo, driver.Return) {
			return driver.GpuFabricInfo{State: driver.GPU_FABRIC_STATE_COMPLETED, Status: uint32(driver.ERROR_UNKNOWN), CliqueId: 2}, driver.SUCCESS
		},
		GetFieldValuesFunc: func(v []driver.FieldValue) driver.Return {
			v[0].Value = [8]byte{byte(driver.GPU_RECOVERY_ACTION_DRAIN_AND_RESET)}
			return driver.SUCCESS
		},
	}, "nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetGpuFabricInfo",
		"nvmlDeviceGetFieldValues")
	if got, err := d.NVLinkPeer(d); got != nvml.PeerRefused || err != nil {
		t.Errorf("peer %v, %v", got, err)
	}
	if got, err := d.CommonAncestor(d); got != nvml.AncestorNode || err != nil {
		t.Errorf("ancestor %v, %v", got, err)
	}
	if got, err := d.NVLinkRemoteType(0); got != nvml.RemoteSwitch || err != nil {
		t.Errorf("remote type %v, %v", got, err)
	}
	if got, err := d.Recovery(); got != nvml.RecoveryDrainAndReset || err != nil {
		t.Errorf("recovery %v, %v", got, err)
	}
	f, err := d.Fabric()
	if err != nil || f.State != nvml.FabricCompleted || f.Status == nil || f.Clique != 2 {
		t.Errorf("fabric %+v, %v", f, err)
	}
}

// TestRecoveryField: the recovery field of an old driver is not supported.
func TestRecoveryField(t *testing.T) {
	d := withSymbols(&mock.Device{GetFieldValuesFunc: func(v []driver.FieldValue) driver.Return {
		v[0].NvmlReturn = uint32(driver.ERROR_INVALID_ARGUMENT)
		return driver.SUCCESS
	}}, "nvmlDeviceGetFieldValues")
	if _, err := d.Recovery(); nvml.KindOf(err) != nvml.KindNotSupported {
		t.Errorf("error %v", err)
	}
}

// TestLostGPUEvent: the event of a GPU that is lost names it.
func TestLostGPUEvent(t *testing.T) {
	lost := false
	gpu := &mock.Device{
		GetUUIDFunc: func() (string, driver.Return) {
			if lost {
				return "", driver.ERROR_GPU_IS_LOST
			}
			return "GPU-1", driver.SUCCESS
		},
		GetSupportedEventTypesFunc: func() (uint64, driver.Return) { return driver.EventTypeXidCriticalError, driver.SUCCESS },
		RegisterEventsFunc:         func(uint64, driver.EventSet) driver.Return { return driver.SUCCESS },
	}
	lib := libraryWith(append(slices.Clone(forEvents), "nvmlDeviceGetUUID")...)
	lib.drv.(*mock.Interface).EventSetCreateFunc = func() (driver.EventSet, driver.Return) {
		return &mock.EventSet{WaitFunc: func(uint32) (driver.EventData, driver.Return) {
			return driver.EventData{Device: gpu, EventType: driver.EventTypeXidCriticalError, EventData: 79}, driver.SUCCESS
		}}, driver.SUCCESS
	}
	set, err := lib.NewEventSet()
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Register(device{lib, gpu}); err != nil {
		t.Fatal(err)
	}
	lost = true
	got, err := set.Wait(time.Second)
	if diff := cmp.Diff(nvml.RawEvent{UUID: "GPU-1", Xid: 79}, got); diff != "" || err != nil {
		t.Errorf("error %v (-want,+got):\n%s", err, diff)
	}
}

// TestEventTranslation: events are translated.
func TestEventTranslation(t *testing.T) {
	gone := &mock.Device{GetUUIDFunc: func() (string, driver.Return) { return "", driver.ERROR_GPU_IS_LOST }}
	here := &mock.Device{GetUUIDFunc: func() (string, driver.Return) { return "GPU-1", driver.SUCCESS }}
	tests := map[string]struct {
		data driver.EventData
		want nvml.RawEvent
	}{
		"an Xid":             {driver.EventData{Device: here, EventType: driver.EventTypeXidCriticalError, EventData: 79}, nvml.RawEvent{UUID: "GPU-1", Xid: 79}},
		"another event":      {driver.EventData{Device: here, EventType: driver.EventTypeDoubleBitEccError, EventData: 79}, nvml.RawEvent{UUID: "GPU-1"}},
		"a GPU that is gone": {driver.EventData{Device: gone, EventType: driver.EventTypeXidCriticalError, EventData: 79}, nvml.RawEvent{Xid: 79}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			set := eventSet{set: &mock.EventSet{WaitFunc: func(ms uint32) (driver.EventData, driver.Return) {
				if ms != 1500 {
					t.Errorf("waited %d ms, want 1500", ms)
				}
				return tc.data, driver.SUCCESS
			}}}
			got, err := set.Wait(1500 * time.Millisecond)
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("error %v (-want,+got):\n%s", err, diff)
			}
		})
	}
}

// TestNoLibrary: a machine without the library has no driver.
func TestNoLibrary(t *testing.T) {
	if err := New("/does/not/exist/libnvidia-ml.so.1").Init(); !nvml.IsNoDriver(err) {
		t.Errorf("error %v, want one of kind no driver", err)
	}
}
