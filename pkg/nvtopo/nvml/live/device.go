// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/binary"
	"fmt"

	driver "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

type device struct {
	lib library
	dev driver.Device
}

func (d device) UUID() (string, error) {
	const symbol = "nvmlDeviceGetUUID"
	if err := d.lib.need(symbol); err != nil {
		return "", err
	}
	v, ret := d.dev.GetUUID()
	return v, check(symbol, ret)
}

func (d device) Name() (string, error) {
	const symbol = "nvmlDeviceGetName"
	if err := d.lib.need(symbol); err != nil {
		return "", err
	}
	v, ret := d.dev.GetName()
	return v, check(symbol, ret)
}

func (d device) BusID() (string, error) {
	const symbol = "nvmlDeviceGetPciInfo"
	if err := d.lib.needAny(symbol, "_v2", "_v3"); err != nil {
		return "", err
	}
	v, ret := d.dev.GetPciInfo()
	return busID(v), check(symbol, ret)
}

// busID returns the address from the C string, which may fill its array to the end.
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
	const symbol = "nvmlDeviceGetMemoryInfo"
	if err := d.lib.need(symbol); err != nil {
		return 0, err
	}
	v, ret := d.dev.GetMemoryInfo()
	return int64(v.Total), check(symbol, ret)
}

func (d device) MIGEnabled() (bool, error) {
	const symbol = "nvmlDeviceGetMigMode"
	if err := d.lib.need(symbol); err != nil {
		return false, err
	}
	current, _, ret := d.dev.GetMigMode()
	return current == driver.DEVICE_MIG_ENABLE, check(symbol, ret)
}

// Slices tries the numbers that MIG devices may have, which have gaps.
func (d device) Slices() ([]nvml.Slice, error) {
	const count, handle, attributes = "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetAttributes"
	if err := d.lib.need(count, handle); err != nil {
		return nil, err
	}
	if err := d.lib.needAny(attributes, "_v2"); err != nil {
		return nil, err
	}
	n, ret := d.dev.GetMaxMigDeviceCount()
	if err := check(count, ret); err != nil {
		return nil, err
	}
	var out []nvml.Slice
	for i := range n {
		mig, ret := d.dev.GetMigDeviceHandleByIndex(i)
		if ret == driver.ERROR_NOT_FOUND || ret == driver.ERROR_INVALID_ARGUMENT {
			continue
		}
		if err := check(handle, ret); err != nil {
			return nil, err
		}
		uuid, err := device{lib: d.lib, dev: mig}.UUID()
		if err != nil {
			return nil, err
		}
		a, ret := mig.GetAttributes()
		if err := check(attributes, ret); err != nil {
			return nil, err
		}
		out = append(out, nvml.Slice{
			UUID: uuid, GPUSlices: int(a.GpuInstanceSliceCount), ComputeSlices: int(a.ComputeInstanceSliceCount), MemoryBytes: int64(a.MemorySizeMB) << 20,
		})
	}
	return out, nil
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
	const symbol = "nvmlDeviceGetMaxPcieLinkGeneration"
	if err := d.lib.need(symbol); err != nil {
		return 0, err
	}
	v, ret := d.dev.GetMaxPcieLinkGeneration()
	return v, check(symbol, ret)
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
	const symbol = "nvmlDeviceGetNvLinkRemotePciInfo"
	if err := d.lib.needAny(symbol, "_v2"); err != nil {
		return "", err
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

// Fabric calls the newest version that the driver has: the third adds the health summary, the second
// exists from driver 550, the first from 525.
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
	v1, ret := d.dev.GetGpuFabricInfo() // deprecated, and the only one before driver 550
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

// Recovery reads a field value, so a driver without the field reports that in the value and not by a
// missing symbol.
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

func foreign(call string, dev nvml.Device) error {
	return &nvml.Error{Call: call, Kind: nvml.KindInvalidArgument, Text: fmt.Sprintf("%T is a device of another library", dev)}
}
