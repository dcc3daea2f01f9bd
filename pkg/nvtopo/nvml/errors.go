// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
)

// ErrorKind classifies driver errors by how discovery handles them.
type ErrorKind int

// The kinds of error.
const (
	// KindOther is every error without a kind of its own; it is worth a retry.
	KindOther ErrorKind = iota
	// KindNotSupported means this device or driver does not have the feature.
	KindNotSupported
	// KindInvalidArgument, for a link number, means there is no such link.
	KindInvalidArgument
	// KindLost means the device fell off the bus or needs a reset.
	KindLost
	// KindNoPermission means the device exists and is hidden from this process.
	KindNoPermission
	// KindUnavailable means the device cannot work: no power, no interrupts.
	KindUnavailable
	// KindTimeout means nothing happened, or the watchdog gave up.
	KindTimeout
	// KindNoDriver means the library or the kernel driver is missing.
	KindNoDriver
	// KindMismatch means the library and the kernel driver are of different versions, as after an update:
	// the process cannot load the right one without a restart.
	KindMismatch
)

// Error is a failed call to the driver.
type Error struct {
	Call string
	Kind ErrorKind
	Text string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Call, e.Text) }

// KindOf returns the kind of a driver error anywhere in err's chain, KindOther
// for any other error.
func KindOf(err error) ErrorKind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindOther
}

// absent reports whether err means that a feature is missing, not that it failed.
func absent(err error) bool {
	k := KindOf(err)
	return k == KindNotSupported || k == KindInvalidArgument
}

// Problem is a condition for the node's operator: discovery went on without the part it names.
type Problem struct {
	GPU  string // UUID, or "GPU 3" where the UUID is not known; empty for the node
	Text string
}

// String returns the problem in one line.
func (p Problem) String() string {
	if p.GPU == "" {
		return p.Text
	}
	return p.GPU + ": " + p.Text
}
