// SPDX-License-Identifier: Apache-2.0

package live

import (
	"time"

	driver "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// eventSet is an event set with the UUIDs of its GPUs: the driver names a GPU by its handle, and a lost
// one no longer returns its UUID when its event arrives.
type eventSet struct {
	set   driver.EventSet
	uuids map[driver.Device]string // by handle, of the registered ones
}

// NewEventSet requires all calls of an event set: without one of them no event is received.
func (l library) NewEventSet() (nvml.EventSet, error) {
	const symbol = "nvmlEventSetCreate"
	if err := l.need(symbol, "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlEventSetFree"); err != nil {
		return nil, err
	}
	if err := l.needAny("nvmlEventSetWait", "_v2"); err != nil {
		return nil, err
	}
	s, ret := l.drv.EventSetCreate()
	if err := check(symbol, ret); err != nil {
		return nil, err
	}
	return eventSet{s, map[driver.Device]string{}}, nil
}

// critical are the events after which the machine is read again. Types that the driver does not support
// are masked out.
const critical = driver.EventTypeXidCriticalError | driver.EventTypeDoubleBitEccError |
	driver.EventTypeDramRetirementEvent | driver.EventTypeDramRetirementFailure |
	driver.EventTypeFatalPoisonError | driver.EventTypeGpuUnavailableError | driver.EventTypeGpuRecoveryAction

func (s eventSet) Register(dev nvml.Device) error {
	const symbol = "nvmlDeviceRegisterEvents"
	d, ok := dev.(device)
	if !ok {
		return foreign(symbol, dev)
	}
	uuid, err := d.UUID()
	if err != nil {
		return err
	}
	supported, ret := d.dev.GetSupportedEventTypes()
	if err := check("nvmlDeviceGetSupportedEventTypes", ret); err != nil {
		return err
	}
	if supported&critical == 0 {
		return &nvml.Error{Call: symbol, Kind: nvml.KindNotSupported, Text: "the GPU has no critical events"}
	}
	s.uuids[d.dev] = uuid
	return check(symbol, d.dev.RegisterEvents(supported&critical, s.set))
}

func (s eventSet) Wait(timeout time.Duration) (nvml.RawEvent, error) {
	data, ret := s.set.Wait(uint32(timeout.Milliseconds()))
	if err := check("nvmlEventSetWait", ret); err != nil {
		return nvml.RawEvent{}, err
	}
	ev := nvml.RawEvent{UUID: s.uuids[data.Device]}
	if ev.UUID == "" {
		if uuid, ret := data.Device.GetUUID(); ret == driver.SUCCESS {
			ev.UUID = uuid
		}
	}
	if data.EventType == driver.EventTypeXidCriticalError {
		ev.Xid = data.EventData
	}
	return ev, nil
}

func (s eventSet) Free() error { return check("nvmlEventSetFree", s.set.Free()) }
