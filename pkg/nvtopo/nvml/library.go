// SPDX-License-Identifier: Apache-2.0

package nvml

import "time"

// Library is the part of the driver's management library that discovery needs. Every method may block for
// as long as the driver does; callers put a watchdog around it. Errors are *Error or wrap one.
type Library interface {
	// Init takes a reference on the library; each success needs one Shutdown.
	Init() error
	Shutdown() error
	// DeviceCount returns the number of devices, including those without a handle.
	DeviceCount() (int, error)
	Device(index int) (Device, error)
	NewEventSet() (EventSet, error)
}

// Device is one GPU. A method that the driver is too old to have returns an error of kind NotSupported.
type Device interface {
	UUID() (string, error)
	Name() (string, error)
	// BusID returns the PCI address in any of the forms drivers print.
	BusID() (string, error)
	// MemoryBytes returns the total memory of the device.
	MemoryBytes() (int64, error)
	MIGEnabled() (bool, error)
	// Slices returns the MIG devices of a device in MIG mode.
	Slices() ([]Slice, error)
	// ComputeMajor returns the major CUDA compute capability: 9 is Hopper.
	ComputeMajor() (int, error)
	// MaxPCIeGen returns the fastest PCIe generation that this device and its slot allow.
	MaxPCIeGen() (int, error)

	// CommonAncestor returns the PCIe relation to another device of the same library.
	CommonAncestor(other Device) (Ancestor, error)
	// NVLinkPeer returns the driver's status of NVLink access to another device.
	NVLinkPeer(other Device) (PeerStatus, error)
	// NVLinkActive reports whether a link is up.
	NVLinkActive(link int) (bool, error)
	// NVLinkRemoteBusID returns the PCI address at the far end of a link.
	NVLinkRemoteBusID(link int) (string, error)
	NVLinkRemoteType(link int) (RemoteType, error)
	Fabric() (Fabric, error)

	RowRemap() (RowRemap, error)
	Recovery() (RecoveryAction, error)
}

// EventSet is a queue of driver events.
type EventSet interface {
	// Register subscribes to the critical events of a device. An error of kind
	// NotSupported leaves the set as it was, any other one leaves it undefined.
	Register(dev Device) error
	// Wait blocks until an event or the timeout, which is an error of kind Timeout.
	Wait(timeout time.Duration) (RawEvent, error)
	Free() error
}

// RawEvent is an event as the driver reports it.
type RawEvent struct {
	UUID string // empty when the device no longer returns it
	Xid  uint64 // 0 when the event is not an Xid
}

// Slice is a MIG device as the driver reports it.
type Slice struct {
	UUID          string
	GPUSlices     int   // of its GPU instance
	ComputeSlices int   // of its compute instance
	MemoryBytes   int64 // of its GPU instance
}

// Ancestor is the nearest common point of two devices in the PCIe hierarchy.
type Ancestor int

// The ancestors, with the values of nvmlGpuTopologyLevel_t (nvml.h). They are
// repeated here because go-nvml also has a TOPOLOGY_CPU constant of value 0, which
// is AncestorInternal and not, as in C, AncestorNode.
const (
	AncestorInternal   Ancestor = 0
	AncestorSingle     Ancestor = 10
	AncestorMultiple   Ancestor = 20
	AncestorHostBridge Ancestor = 30
	AncestorNode       Ancestor = 40
	AncestorSystem     Ancestor = 50
)

// PeerStatus is the driver's status of the access between two devices.
type PeerStatus int

// The answers to NVLinkPeer.
const (
	PeerUnknown PeerStatus = iota // the driver does not know
	PeerOK
	PeerRefused // a reason was given why not
)

// RemoteType is the kind of device at the far end of an NVLink.
type RemoteType int

// The kinds of far end.
const (
	RemoteUnknown RemoteType = iota
	RemoteGPU
	RemoteSwitch
	RemoteCPU // POWER8 and POWER9
)

// FabricState is the progress of a GPU's registration with its NVSwitch fabric.
type FabricState int

// The registration states.
const (
	FabricNotSupported FabricState = iota // no fabric manager is needed
	FabricNotStarted
	FabricInProgress
	FabricCompleted
)

// FabricHealth is the driver's summary of the fabric seen from one GPU.
type FabricHealth int

// The fabric summaries.
const (
	FabricHealthUnknown FabricHealth = iota
	FabricHealthy
	FabricUnhealthy
	FabricLimited
)

// Fabric is the NVSwitch registration of a GPU.
type Fabric struct {
	State   FabricState
	Status  error // why registration failed; meaningful when State is FabricCompleted
	Cluster [16]byte
	Clique  uint32
	Health  FabricHealth
}

// RowRemap is the state of a GPU's spare memory rows.
type RowRemap struct {
	Pending bool // a reset will remap rows
	Failed  bool // no spare rows are left: the GPU must be replaced
}

// RecoveryAction is the action that the driver requests from the operator.
type RecoveryAction int

// The recovery actions, with the values of nvmlDeviceGpuRecoveryAction_t.
const (
	RecoveryNone          RecoveryAction = 0
	RecoveryReset         RecoveryAction = 1
	RecoveryReboot        RecoveryAction = 2
	RecoveryDrainP2P      RecoveryAction = 3
	RecoveryDrainAndReset RecoveryAction = 4
	RecoveryIMEX          RecoveryAction = 5
	RecoveryBusReset      RecoveryAction = 6
	RecoverySystemReboot  RecoveryAction = 7
)
