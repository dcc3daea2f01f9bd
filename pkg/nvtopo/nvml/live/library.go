// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/binary"
	"fmt"
	"time"

	driver "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// New returns the library installed on this machine. path names it, or is empty
// for libnvidia-ml.so.1 from the loader's search path.
func New(path string) nvml.Library {
	var opts []driver.LibraryOption
	if path != "" {
		opts = append(opts, driver.WithLibraryPath(path))
	}
	return library{driver.New(opts...)}
}

type library struct{ drv driver.Interface }

// check turns a return code into an error of ours.
func check(call string, ret driver.Return) error {
	if ret == driver.SUCCESS {
		return nil
	}
	return &nvml.Error{Call: call, Kind: kindOf(ret), Text: ret.Error()}
}

func kindOf(ret driver.Return) nvml.ErrorKind {
	switch ret {
	case driver.ERROR_NOT_SUPPORTED, driver.ERROR_FUNCTION_NOT_FOUND, driver.ERROR_ARGUMENT_VERSION_MISMATCH, driver.ERROR_DEPRECATED:
		return nvml.KindNotSupported
	case driver.ERROR_INVALID_ARGUMENT:
		return nvml.KindInvalidArgument
	case driver.ERROR_GPU_IS_LOST, driver.ERROR_RESET_REQUIRED:
		return nvml.KindLost
	case driver.ERROR_NO_PERMISSION:
		return nvml.KindNoPermission
	case driver.ERROR_INSUFFICIENT_POWER, driver.ERROR_IRQ_ISSUE, driver.ERROR_CORRUPTED_INFOROM:
		return nvml.KindUnavailable
	case driver.ERROR_TIMEOUT:
		return nvml.KindTimeout
	case driver.ERROR_LIBRARY_NOT_FOUND, driver.ERROR_DRIVER_NOT_LOADED:
		return nvml.KindNoDriver
	default:
		return nvml.KindOther
	}
}

// need reports a symbol the installed driver does not have.
func (l library) need(symbol string) error {
	if err := l.drv.Extensions().LookupSymbol(symbol); err != nil {
		return &nvml.Error{Call: symbol, Kind: nvml.KindNotSupported, Text: "not in the installed driver"}
	}
	return nil
}

func (l library) Init() error     { return check("nvmlInit", l.drv.Init()) }
func (l library) Shutdown() error { return check("nvmlShutdown", l.drv.Shutdown()) }

func (l library) DeviceCount() (int, error) {
	n, ret := l.drv.DeviceGetCount()
	return n, check("nvmlDeviceGetCount", ret)
}

func (l library) Device(index int) (nvml.Device, error) {
	d, ret := l.drv.DeviceGetHandleByIndex(index)
	if err := check("nvmlDeviceGetHandleByIndex", ret); err != nil {
		return nil, err
	}
	return device{l, d}, nil
}

func (l library) NewEventSet() (nvml.EventSet, error) {
	s, ret := l.drv.EventSetCreate()
	if err := check("nvmlEventSetCreate", ret); err != nil {
		return nil, err
	}
	return eventSet{s}, nil
}

type eventSet struct{ set driver.EventSet }

// critical are the events after which the machine is read again. The types a
// driver does not know are masked out by what it says it supports.
const critical = driver.EventTypeXidCriticalError | driver.EventTypeDoubleBitEccError |
	driver.EventTypeDramRetirementEvent | driver.EventTypeDramRetirementFailure |
	driver.EventTypeFatalPoisonError | driver.EventTypeGpuUnavailableError | driver.EventTypeGpuRecoveryAction

func (s eventSet) Register(dev nvml.Device) error {
	d, ok := dev.(device)
	if !ok {
		return foreign("nvmlDeviceRegisterEvents", dev)
	}
	supported, ret := d.dev.GetSupportedEventTypes()
	if err := check("nvmlDeviceGetSupportedEventTypes", ret); err != nil {
		return err
	}
	if supported&critical == 0 {
		return &nvml.Error{Call: "nvmlDeviceRegisterEvents", Kind: nvml.KindNotSupported, Text: "the GPU has no critical events"}
	}
	return check("nvmlDeviceRegisterEvents", d.dev.RegisterEvents(supported&critical, s.set))
}

func (s eventSet) Wait(timeout time.Duration) (nvml.RawEvent, error) {
	data, ret := s.set.Wait(uint32(timeout.Milliseconds()))
	if err := check("nvmlEventSetWait", ret); err != nil {
		return nvml.RawEvent{}, err
	}
	var ev nvml.RawEvent
	if uuid, ret := data.Device.GetUUID(); ret == driver.SUCCESS {
		ev.UUID = uuid
	}
	if data.EventType == driver.EventTypeXidCriticalError {
		ev.Xid = data.EventData
	}
	return ev, nil
}

func (s eventSet) Free() error { return check("nvmlEventSetFree", s.set.Free()) }

func foreign(call string, dev nvml.Device) error {
	return &nvml.Error{Call: call, Kind: nvml.KindInvalidArgument, Text: fmt.Sprintf("%T is a device of another library", dev)}
}

type device struct {
	lib library
	dev driver.Device
}

func (d device) UUID() (string, error) {
	v, ret := d.dev.GetUUID()
	return v, check("nvmlDeviceGetUUID", ret)
}

func (d device) Name() (string, error) {
	v, ret := d.dev.GetName()
	return v, check("nvmlDeviceGetName", ret)
}

func (d device) BusID() (string, error) {
	v, ret := d.dev.GetPciInfo()
	return busID(v), check("nvmlDeviceGetPciInfo", ret)
}

// busID decodes the C string, which may fill its array to the end.
func busID(p driver.PciInfo) string {
	b := make([]byte, 0, len(p.BusId))
	for _, c := range p.BusId {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func (d device) MemoryBytes() (int64, error) {
	v, ret := d.dev.GetMemoryInfo()
	return int64(v.Total), check("nvmlDeviceGetMemoryInfo", ret)
}

func (d device) MIGEnabled() (bool, error) {
	const symbol = "nvmlDeviceGetMigMode"
	if err := d.lib.need(symbol); err != nil {
		return false, err
	}
	current, _, ret := d.dev.GetMigMode()
	return current == driver.DEVICE_MIG_ENABLE, check(symbol, ret)
}

func (d device) ComputeMajor() (int, error) {
	const symbol = "nvmlDeviceGetCudaComputeCapability"
	if err := d.lib.need(symbol); err != nil {
		return 0, err
	}
	major, _, ret := d.dev.GetCudaComputeCapability()
	return major, check(symbol, ret)
}

func (d device) MaxPCIeGen() (int, error) {
	v, ret := d.dev.GetMaxPcieLinkGeneration()
	return v, check("nvmlDeviceGetMaxPcieLinkGeneration", ret)
}

func (d device) CommonAncestor(other nvml.Device) (nvml.Ancestor, error) {
	const symbol = "nvmlDeviceGetTopologyCommonAncestor"
	o, ok := other.(device)
	if !ok {
		return 0, foreign(symbol, other)
	}
	if err := d.lib.need(symbol); err != nil {
		return 0, err
	}
	v, ret := d.dev.GetTopologyCommonAncestor(o.dev)
	return nvml.Ancestor(v), check(symbol, ret)
}

func (d device) NVLinkPeer(other nvml.Device) (nvml.PeerStatus, error) {
	const symbol = "nvmlDeviceGetP2PStatus"
	o, ok := other.(device)
	if !ok {
		return nvml.PeerUnknown, foreign(symbol, other)
	}
	if err := d.lib.need(symbol); err != nil {
		return nvml.PeerUnknown, err
	}
	v, ret := d.dev.GetP2PStatus(o.dev, driver.P2P_CAPS_INDEX_NVLINK)
	if err := check(symbol, ret); err != nil {
		return nvml.PeerUnknown, err
	}
	switch v {
	case driver.P2P_STATUS_OK:
		return nvml.PeerOK, nil
	case driver.P2P_STATUS_UNKNOWN:
		return nvml.PeerUnknown, nil
	default:
		return nvml.PeerRefused, nil
	}
}

func (d device) NVLinkActive(link int) (bool, error) {
	const symbol = "nvmlDeviceGetNvLinkState"
	if err := d.lib.need(symbol); err != nil {
		return false, err
	}
	v, ret := d.dev.GetNvLinkState(link)
	return v == driver.FEATURE_ENABLED, check(symbol, ret)
}

func (d device) NVLinkRemoteBusID(link int) (string, error) {
	// go-nvml starts with the first version of this call and moves to the second
	// when the driver has it, so one of the two is enough.
	const symbol = "nvmlDeviceGetNvLinkRemotePciInfo"
	if d.lib.need(symbol+"_v2") != nil {
		if err := d.lib.need(symbol); err != nil {
			return "", err
		}
	}
	v, ret := d.dev.GetNvLinkRemotePciInfo(link)
	return busID(v), check(symbol, ret)
}

func (d device) NVLinkRemoteType(link int) (nvml.RemoteType, error) {
	const symbol = "nvmlDeviceGetNvLinkRemoteDeviceType"
	if err := d.lib.need(symbol); err != nil {
		return nvml.RemoteUnknown, err
	}
	v, ret := d.dev.GetNvLinkRemoteDeviceType(link)
	if err := check(symbol, ret); err != nil {
		return nvml.RemoteUnknown, err
	}
	switch v {
	case driver.NVLINK_DEVICE_TYPE_GPU:
		return nvml.RemoteGPU, nil
	case driver.NVLINK_DEVICE_TYPE_SWITCH:
		return nvml.RemoteSwitch, nil
	case driver.NVLINK_DEVICE_TYPE_IBMNPU:
		return nvml.RemoteCPU, nil
	default:
		return nvml.RemoteUnknown, nil
	}
}

// Fabric asks in the newest form the driver has: the third version adds the
// health summary, the second exists from driver 550, the first from 525.
func (d device) Fabric() (nvml.Fabric, error) {
	const symbol, versioned = "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetGpuFabricInfoV"
	if d.lib.need(versioned) == nil {
		v3, ret := d.dev.GetGpuFabricInfoV().V3()
		if ret == driver.SUCCESS {
			return fabric(v3.State, v3.Status, v3.ClusterUuid, v3.CliqueId, v3.HealthSummary), nil
		}
		if ret == driver.ERROR_ARGUMENT_VERSION_MISMATCH {
			var v2 driver.GpuFabricInfo_v2
			if v2, ret = d.dev.GetGpuFabricInfoV().V2(); ret == driver.SUCCESS {
				return fabric(v2.State, v2.Status, v2.ClusterUuid, v2.CliqueId, driver.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED), nil
			}
		}
		if ret != driver.ERROR_ARGUMENT_VERSION_MISMATCH {
			return nvml.Fabric{}, check(versioned, ret)
		}
	}
	if err := d.lib.need(symbol); err != nil {
		return nvml.Fabric{}, err
	}
	v1, ret := d.dev.GetGpuFabricInfo() // deprecated, and all that drivers before 550 have
	if err := check(symbol, ret); err != nil {
		return nvml.Fabric{}, err
	}
	return fabric(v1.State, v1.Status, v1.ClusterUuid, v1.CliqueId, driver.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED), nil
}

func fabric(state uint8, status uint32, cluster [16]uint8, clique uint32, health uint8) nvml.Fabric {
	f := nvml.Fabric{Cluster: cluster, Clique: clique}
	switch state {
	case driver.GPU_FABRIC_STATE_NOT_STARTED:
		f.State = nvml.FabricNotStarted
	case driver.GPU_FABRIC_STATE_IN_PROGRESS:
		f.State = nvml.FabricInProgress
	case driver.GPU_FABRIC_STATE_COMPLETED:
		f.State = nvml.FabricCompleted
		f.Status = check("fabric registration", driver.Return(status))
	}
	switch health {
	case driver.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY:
		f.Health = nvml.FabricHealthy
	case driver.GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY:
		f.Health = nvml.FabricUnhealthy
	case driver.GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY:
		f.Health = nvml.FabricLimited
	}
	return f
}

func (d device) RowRemap() (nvml.RowRemap, error) {
	const symbol = "nvmlDeviceGetRemappedRows"
	if err := d.lib.need(symbol); err != nil {
		return nvml.RowRemap{}, err
	}
	_, _, pending, failed, ret := d.dev.GetRemappedRows()
	return nvml.RowRemap{Pending: pending, Failed: failed}, check(symbol, ret)
}

// Recovery reads a field value, so a driver that does not know the field says
// so in the value and not by a missing symbol.
func (d device) Recovery() (nvml.RecoveryAction, error) {
	const symbol = "nvmlDeviceGetFieldValues"
	if err := d.lib.need(symbol); err != nil {
		return nvml.RecoveryNone, err
	}
	v := []driver.FieldValue{{FieldId: driver.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if err := check(symbol, d.dev.GetFieldValues(v)); err != nil {
		return nvml.RecoveryNone, err
	}
	switch ret := driver.Return(v[0].NvmlReturn); ret {
	case driver.SUCCESS:
	case driver.ERROR_INVALID_ARGUMENT:
		return nvml.RecoveryNone, check(symbol, driver.ERROR_NOT_SUPPORTED)
	default:
		return nvml.RecoveryNone, check(symbol, ret)
	}
	// An unsigned int in the machine's byte order; the driver's machines are little-endian.
	return nvml.RecoveryAction(binary.LittleEndian.Uint32(v[0].Value[:])), nil
}
